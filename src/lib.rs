//! adit
pub mod engine;
pub mod wire;
