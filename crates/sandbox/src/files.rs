//! Files of a sandbox.
