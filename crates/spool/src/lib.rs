//! The work-directory protocol: parcels that are in exactly one place, whatever is killed.
