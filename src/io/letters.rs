//! A private line between two processes: sockets that keep messages apart (`SOCK_SEQPACKET`, unix(7)), and
//! descriptors beside the bytes (`SCM_RIGHTS`).
//!
//! A **letter** is as long as it must be, and goes in pieces that the kernel takes whole. What must not be
//! long is a single message without pieces: see [`note`] and [`read_note`].

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use zeroize::Zeroizing;

/// Bytes that go at once: less than the kernel's least default for a socket.
const PIECE: usize = 64 << 10;
/// Descriptors that go with one letter at most.
pub const HANDED: usize = 32;
/// The longest letter: a configuration of a hundred thousand tunnels has some 30 MB.
const LONGEST: usize = 1 << 30;

/// What stands before each piece.
const MORE: u8 = 1;
const LAST: u8 = 0;

/// One letter. It may hold keys.
#[derive(Default)]
pub struct Letter {
    /// What it says.
    pub bytes: Zeroizing<Vec<u8>>,
    /// What is handed over with it.
    pub handed: Vec<OwnedFd>,
}

/// A line, and its other end.
///
/// # Errors
/// No descriptors left.
pub fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// Sends a letter, and waits until the line has taken it.
///
/// # Errors
/// Nobody is at the other end; more descriptors than [`HANDED`].
pub fn send(line: impl AsFd, bytes: &[u8], hand: &[BorrowedFd<'_>]) -> io::Result<()> {
    // An empty letter has one piece, too.
    let whole = bytes.len().saturating_sub(1) / PIECE * PIECE;
    let (before, last) = bytes.split_at(whole);
    for piece in before.chunks(PIECE) {
        put(&line, &[IoSlice::new(&[MORE]), IoSlice::new(piece)], &[])?;
    }
    put(&line, &[IoSlice::new(&[LAST]), IoSlice::new(last)], hand)
}

/// Waits for a letter; `None` if the other end is gone.
///
/// # Errors
/// What is no letter.
pub fn receive(line: impl AsFd) -> io::Result<Option<Letter>> {
    let (mut letter, mut buffer) = (Letter::default(), Zeroizing::new(vec![0; PIECE + 1]));
    loop {
        let taken = take(&line, &mut buffer, &mut letter.handed)?;
        let Some((&mark, piece)) = buffer[..taken].split_first() else { return Ok(None) };
        letter.bytes.extend_from_slice(piece);
        match mark {
            LAST => return Ok(Some(letter)),
            MORE if letter.bytes.len() <= LONGEST => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Sends a short message of fixed size, and waits until the line has taken it.
///
/// # Errors
/// Nobody is at the other end.
pub fn note(line: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    put(line, &[IoSlice::new(bytes)], &[])
}

/// Waits for a short message, of which no more than the buffer holds is taken; its length, or `None` if
/// the other end is gone. Descriptors that come with it are closed.
///
/// # Errors
/// The system's own.
pub fn read_note(line: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let taken = take(line, buffer, &mut Vec::new())?;
    Ok(Some(taken).filter(|&taken| taken > 0))
}

fn put(line: impl AsFd, slices: &[IoSlice<'_>], hand: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fits = hand.len() <= HANDED && (hand.is_empty() || beside.push(SendAncillaryMessage::ScmRights(hand)));
    if !fits {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one letter"));
    }
    loop {
        match rustix::net::sendmsg(&line, slices, &mut beside, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return sent.map(drop).map_err(Into::into),
        }
    }
}

fn take(line: impl AsFd, buffer: &mut [u8], handed: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let taken = loop {
        let mut slices = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(&line, &mut slices, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            taken => break taken?,
        }
    };
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            handed.extend(descriptors);
        }
    }
    Ok(taken.bytes)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::thread;

    use super::*;

    #[test]
    fn a_letter_arrives_whole_whatever_its_length() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7] {
            let (here, there) = line().unwrap();
            let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let sent = bytes.clone();
            let sender = thread::spawn(move || send(&here, &sent, &[]).unwrap());
            assert_eq!(*receive(&there).unwrap().unwrap().bytes, bytes);
            sender.join().unwrap();
            assert!(receive(&there).unwrap().is_none(), "the end of the line");
        }
    }

    #[test]
    fn descriptors_arrive_in_their_order_and_do_not_outlive_an_exec() {
        let (here, there) = line().unwrap();
        let (one, two) = line().unwrap();
        send(&here, b"two ends", &[one.as_fd(), two.as_fd()]).unwrap();
        drop((one, two));
        let [one, two] = <[OwnedFd; 2]>::try_from(receive(&there).unwrap().unwrap().handed).unwrap();
        note(&one, b"through").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(read_note(&two, &mut buffer).unwrap(), Some(7));
        let flags = nix::fcntl::fcntl(&one, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags & nix::libc::FD_CLOEXEC, nix::libc::FD_CLOEXEC, "{}", one.as_raw_fd());
    }

    #[test]
    fn more_descriptors_than_fit_are_an_error() {
        let (here, _there) = line().unwrap();
        let many = vec![here.as_fd(); HANDED + 1];
        assert_eq!(send(&here, b"", &many).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_is_no_letter_is_an_error() {
        let (here, there) = line().unwrap();
        note(&here, &[7, 1, 2]).unwrap();
        assert_eq!(receive(&there).err().unwrap().kind(), io::ErrorKind::InvalidData);
    }
}
