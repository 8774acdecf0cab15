//! Opening.

use super::algorithm::TRAILER;
use super::cipher::{Cipher, Front};
use super::replay::Window;
use super::{Algorithm, HEADER, ICV, Keys, halves, next_header, peek};
use crate::wire::{Family, Reject};

/// One inbound association, with its replay window.
pub struct Inbound {
    spi: u32,
    esn: bool,
    cipher: Cipher,
    pub(super) window: Window,
}

/// What was inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The family of the inner packet.
    pub inner: Family,
    /// The inner packet; behind it there may be padding against traffic analysis (RFC 4303
    /// section 2.7), which the packet's own length leaves out.
    pub packet: &'a [u8],
    /// The whole sequence number.
    pub sequence: u64,
    /// Whether the replay window had not had it before.
    pub is_new: bool,
}

impl Inbound {
    /// An association: its SPI, whether its sequence numbers are extended (RFC 4304), the width of
    /// its replay window ([`Window::new`]: 0 is none, or 32 to 4096 numbers), its keys.
    #[must_use]
    pub fn new(spi: u32, esn: bool, window: u32, keys: &Keys) -> Self {
        Self { spi, esn, cipher: Cipher::new(keys), window: Window::new(window) }
    }

    /// The SPI.
    #[must_use]
    pub const fn spi(&self) -> u32 {
        self.spi
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.cipher.algorithm()
    }

    /// Whether sequence numbers are extended.
    #[must_use]
    pub const fn esn(&self) -> bool {
        self.esn
    }

    /// The width of the replay window; 0 is none.
    #[must_use]
    pub const fn replay_window(&self) -> u32 {
        self.window.width()
    }

    /// The highest sequence number of a packet that proved itself; 0 before the first.
    #[must_use]
    pub const fn highest(&self) -> u64 {
        self.window.top()
    }

    /// Opens a packet that begins at its ESP header, into `scratch`, which is not allocated anew
    /// once it is long enough.
    ///
    /// # Errors
    /// In this order: [`Reject::EspTruncated`], [`Reject::EspSpi`] of another association,
    /// [`Reject::EspIcv`], [`Reject::EspReplay`], [`Reject::EspPadding`],
    /// [`Reject::EspNextHeader`]. Only from the ICV on does a packet move the window.
    pub fn open<'a>(&mut self, packet: &[u8], scratch: &'a mut Vec<u8>) -> Result<Opened<'a>, Reject> {
        let (sequence, is_new) = self.unseal(packet, scratch)?;
        if !is_new {
            return Err(Reject::EspReplay);
        }
        let (inner, packet) = strip(scratch)?;
        Ok(Opened { inner, packet, sequence, is_new })
    }

    /// As [`Self::open`], but a packet whose number is not new is opened too, and moves nothing:
    /// for those who can tell by what is in it that it cannot be old.
    ///
    /// # Errors
    /// As [`Self::open`], but for [`Reject::EspReplay`].
    pub fn examine<'a>(&mut self, packet: &[u8], scratch: &'a mut Vec<u8>) -> Result<Opened<'a>, Reject> {
        let (sequence, is_new) = self.unseal(packet, scratch)?;
        let (inner, packet) = strip(scratch)?;
        Ok(Opened { inner, packet, sequence, is_new })
    }

    /// Decrypts what proves itself, and says whether its number is new; then the window has it now.
    fn unseal(&mut self, packet: &[u8], scratch: &mut Vec<u8>) -> Result<(u64, bool), Reject> {
        let header = peek(packet)?;
        let parts = Parts::of(self.algorithm(), packet).ok_or(Reject::EspTruncated)?;
        if header.spi != self.spi {
            return Err(Reject::EspSpi);
        }
        scratch.clear();
        scratch.resize(parts.body.len(), 0);
        let sequence = self.prove(&parts, header.sequence, scratch)?;
        Ok((sequence, self.window.take(sequence)))
    }

    /// Checks the ICV, decrypts, and returns the whole sequence number.
    fn prove(&self, parts: &Parts<'_>, low: u32, out: &mut [u8]) -> Result<u64, Reject> {
        let mut proves =
            |sequence| self.cipher.open(parts.front(self.esn, sequence), parts.body, parts.icv, out).is_ok();
        let sequence = if self.esn { self.window.extend(low) } else { low.into() };
        if proves(sequence) {
            return Ok(sequence);
        }
        // An extended number behind the window was taken for the next round's. If it proves itself
        // as what it really is, it is no forgery, but a replay or a far end that has begun anew:
        // the window will say so, and nobody is sent to look for a wrong key.
        let earlier = sequence.checked_sub(1 << 32).filter(|_| self.esn).ok_or(Reject::EspIcv)?;
        if proves(earlier) { Ok(earlier) } else { Err(Reject::EspIcv) }
    }
}

/// A packet, taken apart.
struct Parts<'a> {
    header: &'a [u8],
    iv: &'a [u8],
    body: &'a [u8],
    icv: &'a [u8; ICV],
}

impl<'a> Parts<'a> {
    /// `None` where something is missing, or what is encrypted is no whole number of blocks.
    fn of(algorithm: Algorithm, packet: &'a [u8]) -> Option<Self> {
        let (header, rest) = packet.split_at_checked(HEADER)?;
        let (iv, rest) = rest.split_at_checked(algorithm.iv_len())?;
        let (body, icv) = rest.split_last_chunk::<ICV>()?;
        let whole = body.len() >= TRAILER && body.len().is_multiple_of(algorithm.alignment());
        whole.then_some(Self { header, iv, body, icv })
    }

    const fn front(&self, esn: bool, sequence: u64) -> Front<'a> {
        let (high, _) = halves(sequence);
        Front { header: self.header, high: if esn { Some(high) } else { None }, iv: self.iv }
    }
}

/// Takes padding and trailer off what was decrypted.
fn strip(body: &[u8]) -> Result<(Family, &[u8]), Reject> {
    let (rest, &[padding, next]) = body.split_last_chunk::<TRAILER>().ok_or(Reject::EspTruncated)?;
    let end = rest.len().checked_sub(padding.into()).ok_or(Reject::EspPadding)?;
    let (packet, padding) = rest.split_at(end);
    // A receiver should look at the padding: RFC 4303 section 2.4.
    if !padding.iter().zip(1..).all(|(&byte, number)| byte == number) {
        return Err(Reject::EspPadding);
    }
    let inner = [Family::V4, Family::V6].into_iter().find(|&family| next_header(family) == next);
    // Neither IPv4 nor IPv6, say a dummy packet (59, RFC 4303 section 2.6).
    inner.map(|inner| (inner, packet)).ok_or(Reject::EspNextHeader)
}
