//! Tests of the cascade.
