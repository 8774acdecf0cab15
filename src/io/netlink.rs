//! Netlink messages (RFC 3549, section 2; netlink(7)): one behind the other in a datagram, their
//! attributes, and what the kernel answers. Any bytes may come: what is broken is an error or is
//! passed over.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use rtnetlink::packet_core::{
    DoneBuffer, Emitable, ErrorBuffer, NLA_HEADER_SIZE, NLM_F_ACK_TLVS, NLM_F_CAPPED, NetlinkBuffer, NetlinkHeader,
    NlaBuffer,
};

/// An answer to one message: an error, or 0 for done (`NLMSG_ERROR`, linux/netlink.h).
pub(super) const ERROR: u16 = 2;
/// The end of a list (`NLMSG_DONE`).
pub(super) const DONE: u16 = 3;

/// What a message is to a socket: `struct nlmsghdr`.
const HEADER: usize = 16;
/// The kernel's words in an answer (`NLMSGERR_ATTR_MSG`).
const WORDS: u16 = 1;

/// One message of a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    /// Of the message that this one answers.
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

/// The messages of a datagram, in order. What is broken ends it with an error.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<Message<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let message = first(bytes).map(|(message, rest)| {
            bytes = rest;
            message
        });
        if message.is_err() {
            bytes = &[];
        }
        Some(message)
    })
}

fn first(bytes: &[u8]) -> io::Result<(Message<'_>, &[u8])> {
    let header = NetlinkBuffer::new_checked(bytes).map_err(invalid)?;
    let length = usize::try_from(header.length()).map_err(invalid)?;
    let message = Message {
        kind: header.message_type(),
        flags: header.flags(),
        sequence: header.sequence_number(),
        payload: bytes.get(HEADER..length).unwrap_or_default(),
    };
    // Each message begins at a multiple of four (NLMSG_ALIGN).
    Ok((message, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The attributes behind a message's fixed part: kind and value. They end where they are broken.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        if bytes.len() < NLA_HEADER_SIZE {
            return None;
        }
        let attribute = NlaBuffer::new_checked(bytes).ok()?;
        let length = usize::from(attribute.length());
        let value = bytes.get(NLA_HEADER_SIZE..length)?;
        let kind = attribute.kind();
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A number of four bytes at the beginning of a value, in the order of this host.
pub(super) fn word(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Puts one message behind what is in the buffer already.
#[expect(clippy::expect_used, reason = "no message of ours comes near 4 GiB")]
pub(super) fn push(buffer: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, body: &impl Emitable) {
    let begin = buffer.len();
    let length = HEADER + body.buffer_len();
    buffer.resize(begin + length, 0);
    let mut header = NetlinkHeader::default();
    header.length = u32::try_from(length).expect("a short message");
    header.message_type = kind;
    header.flags = flags;
    header.sequence_number = sequence;
    let (head, rest) = buffer[begin..].split_at_mut(HEADER);
    header.emit(head);
    body.emit(rest);
}

/// Sets one more flag in a message that was pushed at this place.
pub(super) fn add_flag(buffer: &mut [u8], begin: usize, flag: u16) {
    let mut message = NetlinkBuffer::new(&mut buffer[begin..]);
    message.set_flags(message.flags() | flag);
}

/// What an answer (`NLMSG_ERROR`) or the end of a list (`NLMSG_DONE`) says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// 0 if all is well.
    pub(super) errno: i32,
    /// The kernel's own words (extended acknowledgement), or else the number's.
    pub(super) words: String,
}

impl Outcome {
    /// Reads one, if the message is one.
    pub(super) fn read(message: &Message<'_>) -> io::Result<Option<Self>> {
        let (code, behind) = match message.kind {
            ERROR => {
                let error = ErrorBuffer::new_checked(message.payload).map_err(invalid)?;
                (error.code().map_or(0, i32::from), after_echo(message, error.payload()))
            }
            // A list may also end without a code.
            DONE if message.payload.is_empty() => (0, Default::default()),
            DONE => {
                let done = DoneBuffer::new_checked(message.payload).map_err(invalid)?;
                (done.code(), message.payload.get(4..).unwrap_or_default())
            }
            _ => return Ok(None),
        };
        // A list's code may also be a length.
        let errno = code.min(0).saturating_neg();
        if errno == 0 {
            return Ok(Some(Self { errno, words: String::new() }));
        }
        let told = (message.flags & NLM_F_ACK_TLVS != 0).then(|| told(behind)).flatten();
        Ok(Some(Self { errno, words: told.unwrap_or_else(|| Errno::from_raw(errno).desc().to_owned()) }))
    }

    /// The same as an error of the whole.
    pub(super) fn into_result(self) -> io::Result<()> {
        if self.errno == 0 {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(self.errno))
    }
}

/// An answer quotes the message that it answers, or only its header: what is behind that.
fn after_echo<'a>(message: &Message<'_>, quoted: &'a [u8]) -> &'a [u8] {
    let whole = word(quoted).and_then(|length| usize::try_from(length).ok()).unwrap_or(HEADER);
    let length = if message.flags & NLM_F_CAPPED == 0 { whole.next_multiple_of(4) } else { HEADER };
    quoted.get(length..).unwrap_or_default()
}

fn told(bytes: &[u8]) -> Option<String> {
    let (_, words) = attributes(bytes).find(|(kind, _)| *kind == WORDS)?;
    let words = words.strip_suffix(&[0]).unwrap_or(words);
    Some(String::from_utf8_lossy(words).into_owned())
}

pub(super) fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Receives one datagram without waiting, and gives its whole length, even if it was longer than the
/// buffer.
pub(super) fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> nix::Result<usize> {
    loop {
        match recv(socket.as_fd().as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC) {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Emitable for Bytes {
        fn buffer_len(&self) -> usize {
            self.0.len()
        }

        fn emit(&self, buffer: &mut [u8]) {
            buffer.copy_from_slice(&self.0);
        }
    }

    /// A refusal as Linux 6.18 sends it: error, the header of the message that it answers, words.
    fn refusal() -> Vec<u8> {
        let mut attribute = vec![9, 0, 1, 0];
        attribute.extend(b"full\0\0\0\0");
        let payload = [&(-17_i32).to_ne_bytes()[..], &[0; HEADER], &attribute].concat();
        let mut bytes = Vec::new();
        push(&mut bytes, ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, 7, &Bytes(payload));
        bytes
    }

    #[test]
    fn a_refusal_comes_with_its_number_and_words() {
        let bytes = refusal();
        let message = messages(&bytes).next().unwrap().unwrap();
        assert_eq!(message.sequence, 7);
        let outcome = Outcome::read(&message).unwrap().unwrap();
        assert_eq!(outcome, Outcome { errno: 17, words: "full".to_owned() });
    }

    #[test]
    fn without_words_the_numbers_own_are_taken() {
        let mut bytes = Vec::new();
        push(&mut bytes, ERROR, NLM_F_CAPPED, 7, &Bytes([&(-3_i32).to_ne_bytes()[..], &[0; HEADER]].concat()));
        let message = messages(&bytes).next().unwrap().unwrap();
        let outcome = Outcome::read(&message).unwrap().unwrap();
        assert_eq!(outcome, Outcome { errno: 3, words: "No such process".to_owned() });
    }

    #[test]
    fn several_messages_are_read_in_order_and_a_flag_is_added_to_one() {
        let mut bytes = Vec::new();
        for sequence in 1..=3 {
            push(&mut bytes, 24, 1, sequence, &Bytes(vec![0; 4]));
        }
        add_flag(&mut bytes, 40, 4);
        let read: Vec<_> =
            messages(&bytes).map(|message| message.map(|one| (one.sequence, one.flags)).unwrap()).collect();
        assert_eq!(read, [(1, 1), (2, 1), (3, 5)]);
    }

    #[test]
    fn broken_bytes_end_early_but_do_not_panic() {
        let bytes = [refusal(), refusal()].concat();
        let mut broken: Vec<Vec<u8>> = (0..bytes.len()).map(|length| bytes[..length].to_vec()).collect();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            broken.push(flipped);
        }
        for bytes in broken {
            assert!(messages(&bytes).count() <= 4, "each message takes at least its header");
            for message in messages(&bytes).flatten() {
                let _ = Outcome::read(&message);
                let _ = attributes(message.payload).count();
            }
        }
    }
}
