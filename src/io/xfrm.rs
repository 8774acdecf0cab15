//! Placeholder.
use std::{collections::BTreeSet, io, net::IpAddr};
/// x
#[derive(Debug)]
pub struct Watch;
/// x
pub fn open() -> io::Result<Watch> {
    Err(io::ErrorKind::Unsupported.into())
}
impl Watch {
    /// x
    pub fn associations(&mut self) -> io::Result<BTreeSet<(IpAddr, u32)>> {
        Ok(BTreeSet::new())
    }
}
