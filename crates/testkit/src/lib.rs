//! For tests only: sample stages, temporary roots, crash points, the checker that reads only the disk.
