//! SURT keys, as Internet Archive's surt gives them.
