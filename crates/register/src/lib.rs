//! The register: one record a domain, in sorted generations that never change.
//!
//! [`Register`] finds the current generation, reads it and makes the next one; [`RegisterRecord`] is what is known of one domain.
//! `docs/formats/register.md` has the bytes. Who may change a record, and why, is for plan to say.

mod blocks;
mod countries;
mod error;
mod find;
mod harvest_result;
mod reader;
mod record;
mod register;

pub use countries::Countries;
pub use error::RegisterError;
pub use harvest_result::{HarvestResult, StopReason};
pub use reader::{RegisterLine, RegisterReader};
pub use record::{BadRecord, DnsAnswer, DomainState, RegisterDay, RegisterRecord};
pub use register::{REGISTER_FILE, Register, RegisterChange, RegisterUpdate};
