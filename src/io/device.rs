//! Placeholder.
use nix::errno::Errno;
use std::{io, net::IpAddr};
/// x
#[derive(Debug)]
pub struct DeviceSender;
/// x
pub fn open(_name: &str) -> io::Result<DeviceSender> {
    Err(io::ErrorKind::NotFound.into())
}
impl DeviceSender {
    /// x
    #[must_use]
    pub const fn index(&self) -> u32 {
        0
    }
    /// x
    pub fn send(&self, _packets: &[(IpAddr, &[u8])], _refused: impl FnMut(usize, Errno)) {}
}
