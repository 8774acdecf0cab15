//! adit
pub mod config;
pub mod engine;
pub mod reflect;
pub mod wire;
