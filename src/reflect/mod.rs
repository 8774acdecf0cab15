//! A far end in user space.
pub mod plan;
