//! One of the kernel's lists, datagram by datagram.

use std::io;

use ipnet::IpNet;
use rtnetlink::packet_core::NLM_F_DUMP_INTR;

use super::decode::{self, RTM_NEWLINK, RTM_NEWROUTE, RTM_NEWRULE};
use super::nexthop::{self, RTM_NEWNEXTHOP};
use super::routes::Routes;
use crate::io::netlink::{Message, Outcome, messages};
use crate::steer::{Link, Nexthop, Rule};
use crate::wire::Family;

/// What a list is asked for.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// What bears this is ours.
    pub tag: u8,
    /// Of routes and rules, those of this family.
    pub family: Family,
    /// The number of the question: what answers another one is passed over.
    pub sequence: u32,
    /// Of which tables and destinations the routes of others matter.
    pub concerns: &'a dyn Fn(u32, &IpNet) -> bool,
}

/// What a list has for us, as far as it has been read.
#[derive(Debug, Default)]
pub struct List {
    /// Devices.
    pub links: Vec<Link>,
    /// Rules that bear our tag.
    pub rules: Vec<Rule>,
    /// Routes.
    pub routes: Routes,
    /// Next-hop objects.
    pub objects: Objects,
    /// The kernel has said that it is of several moments.
    pub unsteady: bool,
}

/// Next-hop objects.
#[derive(Debug, Default)]
pub struct Objects {
    /// Those that bear our tag.
    pub ours: Vec<Nexthop>,
    /// Numbers of the others.
    pub taken: Vec<u32>,
    /// Those that groups of others consist of.
    pub lent: Vec<u32>,
}

impl Objects {
    fn take(&mut self, tag: u8, payload: &[u8]) {
        match nexthop::read(payload) {
            Some((protocol, nexthop)) if protocol == tag => self.ours.push(nexthop),
            Some((_, nexthop)) => {
                self.taken.push(nexthop.id);
                self.lent.extend(nexthop::members(payload));
            }
            None => {}
        }
    }
}

impl List {
    /// Takes one datagram, and says whether it was the last one.
    ///
    /// # Errors
    /// The kernel's refusal, or `InvalidData` where the bytes are no messages.
    pub fn take(&mut self, asked: &Asked<'_>, datagram: &[u8]) -> io::Result<bool> {
        for message in messages(datagram) {
            let message = message?;
            if message.sequence != asked.sequence {
                continue;
            }
            self.unsteady |= message.flags & NLM_F_DUMP_INTR != 0;
            match Outcome::read(&message)? {
                None => self.keep(asked, &message),
                Some(outcome) => return outcome.into_result().map(|()| true),
            }
        }
        Ok(false)
    }

    fn keep(&mut self, asked: &Asked<'_>, message: &Message<'_>) {
        let Asked { tag, family, concerns, .. } = *asked;
        match message.kind {
            RTM_NEWLINK => self.links.extend(decode::link(message.payload)),
            RTM_NEWRULE => {
                self.rules.extend(decode::rule(tag, message.payload).filter(|rule| rule.family == family));
            }
            RTM_NEWROUTE => self.routes.take(tag, family, message.payload, concerns),
            RTM_NEWNEXTHOP => self.objects.take(tag, message.payload),
            _ => {}
        }
    }
}
