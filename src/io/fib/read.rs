//! The picture of now: lists of all there is.

use std::io;

use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_core::{Emitable, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST};
use rtnetlink::packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::sys::Socket;

use super::decode::{self, Head, RTM_GETLINK, RTM_GETROUTE, RTM_GETRULE, RTM_NEWLINK, RTM_NEWROUTE, RTM_NEWRULE};
use super::nexthop::{self, RTM_GETNEXTHOP, RTM_NEWNEXTHOP};
use super::{DATAGRAM, encode, socket};
use crate::io::netlink::{Message, Outcome, invalid, messages, push, receive};
use crate::steer::{Foreign, KernelRoute, Nexthop, Picture, Way};
use crate::wire::Family;

/// How often a list is begun anew because something has changed meanwhile.
const TRIES: usize = 10;

/// Looks at what one network namespace has.
#[derive(Debug)]
pub struct Reader {
    socket: Socket,
    tag: u8,
    sequence: u32,
    datagram: Vec<u8>,
}

/// Why there is no picture.
enum Halt {
    /// It is no longer wanted.
    Unwanted,
    Failed(io::Error),
}

impl<E: Into<io::Error>> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Reader {
    pub(super) fn open(tag: u8) -> io::Result<Self> {
        let (socket, _) = socket()?;
        // Without it the list of routes has what was found for single destinations, too; that is passed over.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, tag, sequence: 0, datagram: vec![0; DATAGRAM] })
    }

    /// All there is now. `concerns` says of which tables and destinations the routes of others matter.
    /// `go_on` is asked every 32 KiB or so, about 300 routes; when it says no, the picture is given up and
    /// there is `None`. (The next one then begins with reading the rest of this one.)
    ///
    /// Each of its lists is of one moment, but of another moment than the next.
    ///
    /// Routes and rules of ours that are for some packets only by something that we never ask for (type of
    /// service, source of a route, input device of a rule) are left out: nothing here could delete them.
    ///
    /// # Errors
    /// `ResourceBusy` if the kernel's lists change again and again while they are read. Anything else is
    /// the system's own.
    pub fn picture(
        &mut self,
        concerns: impl Fn(u32, &IpNet) -> bool,
        mut go_on: impl FnMut() -> bool,
    ) -> io::Result<Option<Picture>> {
        match self.look(&concerns, &mut go_on) {
            Ok(picture) => Ok(Some(picture)),
            Err(Halt::Unwanted) => Ok(None),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    fn look(
        &mut self,
        concerns: &dyn Fn(u32, &IpNet) -> bool,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Picture, Halt> {
        self.finish_last(go_on)?;
        let tag = self.tag;
        let links = self.list(go_on, RTM_GETLINK, &links(), |found: &mut Vec<_>, message| {
            found.extend((message.kind == RTM_NEWLINK).then(|| decode::link(message.payload)).flatten());
        })?;
        let (nexthops, taken) = self.nexthops(go_on)?;
        let mut picture = Picture { links, nexthops, taken, ..Picture::default() };
        for family in [Family::V4, Family::V6] {
            let rules = self.list(go_on, RTM_GETRULE, &rules(family), |found: &mut Vec<_>, message| {
                let rule = (message.kind == RTM_NEWRULE).then(|| decode::rule(tag, message.payload)).flatten();
                found.extend(rule.filter(|rule| rule.family == family));
            });
            picture.rules.append(&mut or_none(rules)?);
            let found = self.list(go_on, RTM_GETROUTE, &routes(family), |found: &mut Routes, message| {
                if message.kind == RTM_NEWROUTE {
                    found.take(tag, family, message.payload, concerns);
                }
            })?;
            picture.routes.extend(found.ours);
            picture.foreign.extend(found.foreign);
        }
        Ok(picture)
    }

    fn nexthops(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<(Option<Vec<Nexthop>>, Vec<u32>), Halt> {
        let tag = self.tag;
        let question = nexthop::Message::default();
        let found = self.list(go_on, RTM_GETNEXTHOP, &question, |(ours, taken): &mut (Vec<_>, Vec<_>), message| {
            if message.kind == RTM_NEWNEXTHOP {
                match nexthop::read(message.payload) {
                    Some((protocol, nexthop)) if protocol == tag => ours.push(nexthop),
                    Some((_, nexthop)) => taken.push(nexthop.id),
                    None => {}
                }
            }
        });
        match found {
            Ok((ours, taken)) => Ok((Some(ours), taken)),
            Err(Halt::Failed(error)) if is(&error, &[Errno::EOPNOTSUPP]) => Ok((None, Vec::new())),
            Err(halt) => Err(halt),
        }
    }

    /// One list, of one moment.
    fn list<T: Default>(
        &mut self,
        go_on: &mut dyn FnMut() -> bool,
        kind: u16,
        question: &impl Emitable,
        mut take: impl FnMut(&mut T, &Message<'_>),
    ) -> Result<T, Halt> {
        for _ in 0..TRIES {
            self.ask(kind, question)?;
            let mut found = T::default();
            if self.answer(go_on, |message| take(&mut found, message))? {
                return Ok(found);
            }
        }
        let error = io::Error::new(io::ErrorKind::ResourceBusy, "the kernel's lists change while they are read");
        Err(Halt::Failed(error))
    }

    fn ask(&mut self, kind: u16, question: &impl Emitable) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        push(&mut bytes, kind, NLM_F_REQUEST | NLM_F_DUMP, self.sequence, question);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Reads a list to its end, and says whether it is of one moment.
    fn answer(&mut self, go_on: &mut dyn FnMut() -> bool, mut take: impl FnMut(&Message<'_>)) -> Result<bool, Halt> {
        let mut consistent = true;
        loop {
            if !go_on() {
                return Err(Halt::Unwanted);
            }
            // The kernel makes the next part when this one is taken, so that there is nothing to wait for.
            let length = receive(&self.socket, &mut self.datagram)?;
            let datagram = self.datagram.get(..length);
            let datagram = datagram.ok_or_else(|| invalid("a message of the kernel's that is too long"))?;
            for message in messages(datagram) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue;
                }
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                match Outcome::read(&message)? {
                    None => take(&message),
                    Some(outcome) => return Ok(outcome.into_result().map(|()| consistent)?),
                }
            }
        }
    }

    /// Reads the rest of a list that was given up: the kernel begins no other before.
    fn finish_last(&self, go_on: &mut dyn FnMut() -> bool) -> Result<(), Halt> {
        while matches!(receive(&self.socket, &mut []), Ok(_) | Err(Errno::ENOBUFS)) {
            if !go_on() {
                return Err(Halt::Unwanted);
            }
        }
        Ok(())
    }
}

/// What a list of routes has for us.
#[derive(Debug, Default)]
struct Routes {
    ours: Vec<KernelRoute>,
    foreign: Vec<Foreign>,
}

impl Routes {
    fn take(&mut self, tag: u8, family: Family, payload: &[u8], concerns: &dyn Fn(u32, &IpNet) -> bool) {
        // A kernel without IPv6 gives the routes of all other families instead.
        let Some(head) = Head::read(payload).filter(|head| head.is_route() && head.family == family) else { return };
        if head.protocol != tag {
            self.foreign.extend(concerns(head.table, &head.prefix).then(|| head.foreign()));
        } else if !head.choosy {
            self.add(head.route());
        }
    }

    /// IPv6 has each hop as a route of its own, and shows those together only that it takes for one route.
    fn add(&mut self, mut route: KernelRoute) {
        let last = self.ours.last_mut().filter(|last| is_v6(last) && same_key(last, &route));
        if let (Some(Way::Hops(hops)), Way::Hops(more)) = (last.map(|last| &mut last.way), &mut route.way) {
            hops.append(more);
        } else {
            self.ours.push(route);
        }
    }
}

const fn is_v6(route: &KernelRoute) -> bool {
    matches!(route.prefix, IpNet::V6(_))
}

fn same_key(one: &KernelRoute, other: &KernelRoute) -> bool {
    (one.table, one.prefix, one.metric) == (other.table, other.prefix, other.metric)
}

fn links() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    message
}

fn rules(family: Family) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = encode::family(family);
    message
}

fn routes(family: Family) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = encode::family(family);
    message
}

/// A kernel without a family, or without policy rules for it, has none.
fn or_none<T: Default>(found: Result<T, Halt>) -> Result<T, Halt> {
    match found {
        Err(Halt::Failed(error)) if is(&error, &[Errno::EAFNOSUPPORT, Errno::EOPNOTSUPP]) => Ok(T::default()),
        found => found,
    }
}

fn is(error: &io::Error, numbers: &[Errno]) -> bool {
    numbers.iter().any(|number| error.raw_os_error() == Some(*number as i32))
}
