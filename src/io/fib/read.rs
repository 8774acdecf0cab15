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
    /// It is not of one moment. Of devices and objects the kernel says when their list has changed while it
    /// was read, and then it is read again. Of routes and rules it does not, and of many rules some may be
    /// missing that were there all the time, if others came and went meanwhile: so what seems to be missing,
    /// but is refused because it is there, is there.
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
            let found = if family == Family::V6 { found.once() } else { found };
            picture.routes.extend(found.ours);
            picture.foreign.extend(found.foreign);
        }
        picture.rules.sort_unstable();
        picture.rules.dedup();
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

    /// One list, of one moment as far as the kernel can tell.
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

    /// Reads a list to its end, and says whether it is of one moment as far as the kernel can tell.
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
            self.ours.push(head.route());
        }
    }

    /// Each route once. IPv6 has each hop as a route of its own, and shows those together only that it takes
    /// for one route. And it shows some twice if others are added meanwhile; there are none that are the same.
    fn once(mut self) -> Self {
        self.foreign.sort_unstable();
        self.foreign.dedup();
        // Those with one key stay in their order.
        self.ours.sort_by_key(key);
        let mut ours = Vec::with_capacity(self.ours.len());
        for route in self.ours {
            if let Some(route) = joined(&mut ours, route) {
                ours.push(route);
            }
        }
        Self { ours, ..self }
    }
}

/// Joins a route to one with its key that has hops, too, or is the same; gives it back if there is none.
fn joined(routes: &mut [KernelRoute], route: KernelRoute) -> Option<KernelRoute> {
    for other in routes.iter_mut().rev().take_while(|other| key(other) == key(&route)) {
        if let (Way::Hops(hops), Way::Hops(more)) = (&mut other.way, &route.way) {
            hops.extend(more);
            hops.sort_unstable();
            hops.dedup();
            return None;
        }
        if other.way == route.way && other.way != Way::Other {
            return None;
        }
    }
    Some(route)
}

const fn key(route: &KernelRoute) -> (u32, IpNet, u32) {
    (route.table, route.prefix, route.metric)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steer::Hop;

    #[test]
    fn what_an_ipv6_list_shows_twice_or_in_parts_is_one_route() {
        let hop = |device| Hop { device, via: None, onlink: false, weight: 1 };
        let route =
            |prefix: &str, metric, way| KernelRoute { table: 254, prefix: prefix.parse().unwrap(), metric, way };
        let (one, other) = ("2001:db8:1::/48", "2001:db8:2::/48");
        let hops = |devices: &[u32]| Way::Hops(devices.iter().copied().map(hop).collect());
        let ours = vec![
            route(other, 1, hops(&[3])),
            route(one, 1, Way::Object(7)),
            route(one, 1, hops(&[2])),
            route(one, 2, Way::Other),
            route(other, 1, hops(&[3])),
            route(one, 1, hops(&[1])),
            route(one, 1, Way::Object(7)),
            route(one, 2, Way::Other),
        ];
        let foreign = Foreign { table: 254, prefix: one.parse().unwrap(), metric: 9, protocol: 4 };
        let found = Routes { ours, foreign: vec![foreign, foreign] }.once();
        let wanted = [
            route(one, 1, Way::Object(7)),
            route(one, 1, hops(&[1, 2])),
            // Two that are not known may differ.
            route(one, 2, Way::Other),
            route(one, 2, Way::Other),
            route(other, 1, hops(&[3])),
        ];
        assert_eq!(found.ours, wanted);
        assert_eq!(found.foreign, [foreign]);
    }
}
