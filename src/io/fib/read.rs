//! The picture of now: lists of all there is.

use std::io;

use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_core::{Emitable, NLM_F_DUMP, NLM_F_REQUEST};
use rtnetlink::packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::sys::Socket;

use super::decode::{RTM_GETLINK, RTM_GETROUTE, RTM_GETRULE};
use super::list::{Asked, List, Objects};
use super::nexthop::{self, RTM_GETNEXTHOP};
use super::routes::Routes;
use super::witness::Witness;
use super::{DATAGRAM, encode, socket};
use crate::io::netlink::{invalid, push, receive};
use crate::steer::{Picture, Rule};
use crate::wire::Family;

/// How often a list is begun because something has changed meanwhile.
const TRIES: usize = 10;
/// The same, where an answer can be had even if that goes on.
const FEW_TRIES: usize = 4;

/// Looks at what one network namespace has.
#[derive(Debug)]
pub struct Reader {
    socket: Socket,
    tag: u8,
    sequence: u32,
    datagram: Vec<u8>,
    witness: Witness,
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
        Ok(Self { socket, tag, sequence: 0, datagram: vec![0; DATAGRAM], witness: Witness::open()? })
    }

    /// All there is now. `concerns` says of which tables and destinations the routes of others matter.
    /// `go_on` is asked every 32 KiB or so, about 300 routes; when it says no, the picture is given up and
    /// there is `None`. (The next one then begins with reading the rest of this one.)
    ///
    /// It is not of one moment. But a list that others change while it is read is read again, as the kernel
    /// may show parts of it twice or not at all. If that goes on, what bears our tag in any of a few lists is
    /// taken to be there; those changes are then heard of by [`Monitor`](super::Monitor).
    ///
    /// Routes and rules of ours that are for some packets only by something that we never ask for (type of
    /// service, source of a route, input device of a rule) are left out: nothing here could delete them.
    ///
    /// # Errors
    /// `ResourceBusy` if devices or objects change again and again while they are read. Anything else is
    /// the system's own.
    pub fn picture(
        &mut self,
        concerns: impl Fn(u32, &IpNet) -> bool,
        mut go_on: impl FnMut() -> bool,
    ) -> io::Result<Option<Picture>> {
        self.witness.begin()?;
        let looked = self.look(&concerns, &mut go_on);
        self.witness.end()?;
        match looked {
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
        let links = self.list(go_on, RTM_GETLINK, &links())?.links;
        let objects = self.nexthops(go_on)?;
        // None, where the kernel has no such objects.
        let nexthops = objects.as_ref().map(|objects| objects.ours.clone());
        let Objects { taken, lent, .. } = objects.unwrap_or_default();
        let mut picture = Picture { links, nexthops, taken, lent, ..Picture::default() };
        for family in [Family::V4, Family::V6] {
            self.witness.quiet();
            let rules = self.rules(go_on, family)?;
            picture.rules.extend(self.steadied(rules, |reader| reader.rules(go_on, family))?);
            self.witness.quiet();
            let mut found = self.routes(go_on, family, RouteProtocol::Unspec, concerns)?;
            // The kernel keeps its place in IPv4 routes by their destination, but elsewhere by counting.
            if family == Family::V6 {
                let again = |reader: &mut Self| Ok(reader.routes(go_on, family, tag.into(), concerns)?.ours);
                found.ours = self.steadied(found.ours, again)?;
                found = found.once();
            }
            picture.routes.extend(found.ours);
            picture.foreign.extend(found.foreign);
            picture.lent.extend(found.lent);
        }
        picture.rules.sort_unstable();
        picture.rules.dedup();
        Ok(picture)
    }

    fn rules(&mut self, go_on: &mut dyn FnMut() -> bool, family: Family) -> Result<Vec<Rule>, Halt> {
        let mut question = RuleMessage::default();
        question.header.family = encode::family(family);
        match self.answered(go_on, RTM_GETRULE, &question, family, &|_, _| false) {
            // A kernel without a family, or without policy rules for it, has none.
            Err(Halt::Failed(error)) if is(&error, &[Errno::EAFNOSUPPORT, Errno::EOPNOTSUPP]) => Ok(Vec::new()),
            found => found.map(|found| found.rules),
        }
    }

    /// Routes of a family; those of one protocol only, if the kernel can choose.
    fn routes(
        &mut self,
        go_on: &mut dyn FnMut() -> bool,
        family: Family,
        protocol: RouteProtocol,
        concerns: &dyn Fn(u32, &IpNet) -> bool,
    ) -> Result<Routes, Halt> {
        let mut question = RouteMessage::default();
        question.header.address_family = encode::family(family);
        question.header.protocol = protocol;
        self.answered(go_on, RTM_GETROUTE, &question, family, concerns).map(|found| found.routes)
    }

    /// A list, and if there were changes meanwhile, the same again, until there are none. Or else all that
    /// were in any of a few.
    fn steadied<T>(
        &mut self,
        mut found: Vec<T>,
        mut again: impl FnMut(&mut Self) -> Result<Vec<T>, Halt>,
    ) -> Result<Vec<T>, Halt> {
        let mut quiet = self.witness.quiet();
        for _ in 1..FEW_TRIES {
            if quiet {
                break;
            }
            let mut more = again(self)?;
            quiet = self.witness.quiet();
            if !quiet {
                more.append(&mut found);
            }
            found = more;
        }
        Ok(found)
    }

    /// Next-hop objects, if the kernel has such.
    fn nexthops(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Objects>, Halt> {
        match self.list(go_on, RTM_GETNEXTHOP, &nexthop::Message::default()) {
            Err(Halt::Failed(error)) if is(&error, &[Errno::EOPNOTSUPP]) => Ok(None),
            found => found.map(|found| Some(found.objects)),
        }
    }

    /// One list, of one moment: for lists of which the kernel says if they are not.
    fn list(&mut self, go_on: &mut dyn FnMut() -> bool, kind: u16, question: &impl Emitable) -> Result<List, Halt> {
        for _ in 0..TRIES {
            // These are of no family.
            let found = self.answered(go_on, kind, question, Family::V4, &|_, _| false)?;
            if !found.unsteady {
                return Ok(found);
            }
        }
        let error = io::Error::new(io::ErrorKind::ResourceBusy, "the kernel's lists change while they are read");
        Err(Halt::Failed(error))
    }

    /// The whole answer to one question.
    fn answered(
        &mut self,
        go_on: &mut dyn FnMut() -> bool,
        kind: u16,
        question: &impl Emitable,
        family: Family,
        concerns: &dyn Fn(u32, &IpNet) -> bool,
    ) -> Result<List, Halt> {
        self.ask(kind, question)?;
        let asked = Asked { tag: self.tag, family, sequence: self.sequence, concerns };
        let mut found = List::default();
        loop {
            if !go_on() {
                return Err(Halt::Unwanted);
            }
            // The kernel makes the next part when this one is taken, so that there is nothing to wait for.
            let length = receive(&self.socket, &mut self.datagram)?;
            let datagram = self.datagram.get(..length);
            let datagram = datagram.ok_or_else(|| invalid("a message of the kernel's that is too long"))?;
            if found.take(&asked, datagram)? {
                return Ok(found);
            }
        }
    }

    fn ask(&mut self, kind: u16, question: &impl Emitable) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        push(&mut bytes, kind, NLM_F_REQUEST | NLM_F_DUMP, self.sequence, question);
        self.socket.send(&bytes, 0).map(drop)
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

fn links() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    message
}

fn is(error: &io::Error, numbers: &[Errno]) -> bool {
    numbers.iter().any(|number| error.raw_os_error() == Some(*number as i32))
}
