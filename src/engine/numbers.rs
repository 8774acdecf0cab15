//! Placeholder.
use super::WallTime;
/// x
pub const BLOCK: u64 = 10_000;
/// x
pub fn by_clock(_wall: WallTime) -> u64 {
    1
}
/// x
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    next: u64,
}
impl Numbers {
    /// x
    #[must_use]
    pub const fn new(first: u64, _reserved: u64, _last: u64) -> Self {
        Self { next: first }
    }
    /// x
    pub fn take(&mut self) -> Option<u64> {
        self.next += 1;
        Some(self.next - 1)
    }
    /// x
    pub fn wants(&mut self) -> Option<u64> {
        None
    }
    /// x
    pub fn grant(&mut self, _mark: u64) {}
    /// x
    pub fn retry(&mut self) {}
    /// x
    #[must_use]
    pub const fn exhausted(&self) -> bool {
        false
    }
    /// x
    pub fn became_scarce(&mut self) -> bool {
        false
    }
}
