//! The guard of every way out: which hosts may be reached, and at which addresses.
