//! Changes, many in one send, each answered.

use std::io;

use nix::errno::Errno;
use rtnetlink::packet_core::NLM_F_REQUEST;
use rtnetlink::sys::Socket;

use super::nexthop::{self, RTM_GETNEXTHOP, RTM_NEWNEXTHOP};
use super::{DATAGRAM, encode, enlarge_receive_buffer, socket};
use crate::io::netlink::{Outcome, add_flag, invalid, messages, push, receive};
use crate::steer::{Change, Nexthop, Refusal};

/// Asked for, so that a whole send may be refused and still be answered; the kernel may give less.
const ANSWERS: usize = 2 << 20;
/// What one refusal takes of that at most: the kernel counts its own overhead, too.
const ANSWER: usize = 2_048;
/// A send ends with the message that comes to this many bytes. The kernel works a send off at once, so it
/// is also what others who want to change something have to wait for: some milliseconds.
const SEND: usize = 48 << 10;

/// Changes the routes of one network namespace.
#[derive(Debug)]
pub struct Writer {
    socket: Socket,
    port: u32,
    tag: u8,
    /// Messages in one send at most, so that there is room for all their answers.
    most: usize,
    sequence: u32,
    /// What is being sent.
    packed: Vec<u8>,
    datagram: Vec<u8>,
}

impl Writer {
    pub(super) fn open(tag: u8) -> io::Result<Self> {
        let (socket, port) = socket()?;
        enlarge_receive_buffer(&socket, ANSWERS)?;
        // An answer need not quote the whole message.
        let _ = socket.set_cap_ack(true);
        let most = (socket.get_rx_buf_sz()? / ANSWER).max(1);
        Ok(Self { socket, port, tag, most, sequence: 0, packed: Vec::new(), datagram: vec![0; DATAGRAM] })
    }

    /// The kernel's number for this socket: what it announces of our changes bears it.
    pub(super) const fn port(&self) -> u32 {
        self.port
    }

    /// Makes changes, in this order, and gives those that were refused; each stands for itself. It waits
    /// until the kernel has answered all. Of 100 000, one takes 5 µs or less.
    ///
    /// The kernel's way to look for what is to be deleted has limits:
    /// - A metric of 0 matches any.
    /// - Of IPv4 routes with the same table, prefix and metric, the first is taken whose hops are those
    ///   that are named, or the beginning of them.
    /// - Of IPv6 routes with the same table, prefix and metric, one over a next-hop object that comes first is
    ///   taken even if hops are named.
    /// - Of rules with the same priority, table and tag, the first is taken that has all selectors that
    ///   are named, even if it has more.
    ///
    /// # Errors
    /// Where [`is_overrun`](super::is_overrun) holds, some answers are lost, and it is not known which of
    /// the changes were made. Anything else is the system's own.
    pub fn carry_out(&mut self, changes: &[Change]) -> io::Result<Vec<Refusal>> {
        self.forget_answers();
        let first = self.sequence;
        self.sequence = first.wrapping_add(as_sequence(changes.len()));
        let mut refusals = Vec::new();
        let mut from = 0;
        while from < changes.len() {
            let (next, last) = self.pack(changes, from, first, &mut refusals)?;
            if let Some(last) = last {
                self.socket.send(&self.packed, 0)?;
                self.await_answers(first, last, changes.len(), &mut refusals)?;
            }
            from = next;
        }
        refusals.sort_by_key(|refusal| refusal.place);
        Ok(refusals)
    }

    /// Packs as many changes as one send holds, the first of them at `from`. Gives the place of the first
    /// that is left, and the sequence number of the last that was packed.
    fn pack(
        &mut self,
        changes: &[Change],
        from: usize,
        first: u32,
        refusals: &mut Vec<Refusal>,
    ) -> io::Result<(usize, Option<u32>)> {
        self.packed.clear();
        let (mut last, mut last_begin, mut count) = (None, 0, 0);
        let mut place = from;
        while let Some(change) = changes.get(place)
            && count < self.most
            && self.packed.len() < SEND
        {
            let (begin, sequence) = (self.packed.len(), first.wrapping_add(as_sequence(place)));
            if let Some(why) = self.not_ours(change)? {
                refusals.push(Refusal { place, errno: Errno::ESRCH as i32, why });
            } else if let Err(why) = encode::change(self.tag, change, sequence, &mut self.packed) {
                refusals.push(Refusal { place, errno: Errno::EINVAL as i32, why: why.to_owned() });
            } else {
                (last, last_begin, count) = (Some(sequence), begin, count + 1);
            }
            place += 1;
        }
        if last.is_some() {
            add_flag(&mut self.packed, last_begin, encode::ANSWER);
        }
        Ok((place, last))
    }

    /// Why an object is not to be touched, if it is somebody else's: the kernel does not ask whose it is.
    fn not_ours(&mut self, change: &Change) -> io::Result<Option<String>> {
        let (Change::ReplaceNexthop(Nexthop { id, .. }) | Change::DeleteNexthop(id)) = *change else {
            return Ok(None);
        };
        let owner = self.owner(id)?.filter(|owner| *owner != self.tag);
        Ok(owner.map(|owner| format!("next-hop object {id} is of protocol {owner}, not ours")))
    }

    /// The protocol of an object, if it is there.
    fn owner(&mut self, id: u32) -> io::Result<Option<u8>> {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        let mut question = Vec::new();
        push(&mut question, RTM_GETNEXTHOP, NLM_F_REQUEST, sequence, &nexthop::Message::about(id));
        self.socket.send(&question, 0)?;
        loop {
            let datagram = take(&self.socket, &mut self.datagram)?;
            for message in messages(datagram) {
                let message = message?;
                if message.sequence == sequence {
                    let found = (message.kind == RTM_NEWNEXTHOP).then(|| nexthop::read(message.payload)).flatten();
                    return Ok(found.map(|(protocol, _)| protocol));
                }
            }
        }
    }

    /// Reads answers up to that to the message with the sequence number `last`.
    fn await_answers(&mut self, first: u32, last: u32, count: usize, refusals: &mut Vec<Refusal>) -> io::Result<()> {
        loop {
            let datagram = take(&self.socket, &mut self.datagram)?;
            for message in messages(datagram) {
                let message = message?;
                let place = usize::try_from(message.sequence.wrapping_sub(first)).map_err(invalid)?;
                let Some(outcome) = Outcome::read(&message)?.filter(|_| place < count) else { continue };
                if outcome.errno != 0 {
                    refusals.push(refusal(place, outcome));
                }
                if message.sequence == last {
                    return Ok(());
                }
            }
        }
    }

    /// Answers that were not read because of an error that came before.
    fn forget_answers(&self) {
        while matches!(receive(&self.socket, &mut []), Ok(_) | Err(Errno::ENOBUFS)) {}
    }
}

fn refusal(place: usize, Outcome { errno, words }: Outcome) -> Refusal {
    let why = if errno == Errno::EPERM as i32 { format!("this needs CAP_NET_ADMIN ({words})") } else { words };
    Refusal { place, errno, why }
}

/// The kernel answers within the send, so that there is nothing to wait for.
fn take<'a>(socket: &Socket, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let length = receive(socket, buffer)?;
    buffer.get(..length).ok_or_else(|| invalid("a message of the kernel's that is too long"))
}

/// Numbers of messages go round.
#[expect(clippy::cast_possible_truncation, reason = "they go round")]
const fn as_sequence(place: usize) -> u32 {
    place as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_want_of_a_capability_names_it() {
        let refused = |errno: Errno| refusal(3, Outcome { errno: errno as i32, words: errno.desc().to_owned() });
        assert_eq!(refused(Errno::EPERM).why, "this needs CAP_NET_ADMIN (Operation not permitted)");
        assert_eq!(refused(Errno::EACCES).why, "Permission denied");
        assert_eq!((refused(Errno::EPERM).place, refused(Errno::EPERM).errno), (3, 1));
    }
}
