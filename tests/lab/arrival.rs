//! By which device an answer comes.

use std::fs::File;
use std::io;

use adit::io::clock::Clock;
use adit::io::netns;
use adit::io::raw::{self, Inbox};
use adit::wire::filter::{Pass, Protocol};
use adit::wire::probe::Arrived;
use adit::wire::{Family, gre};
use libtest_mimic::{Failed, Trial};

use crate::kernel_io::{INNER, STYLES, open, probe, send};
use crate::two::{Two, holds_in_time, index};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("an_answer_is_known_by_the_device_it_came_by", two_devices)]
}

/// Two GRE devices over one wire: the inner packet came by the one or the other, the outer one by the
/// wire.
fn two_devices() -> Result<(), Failed> {
    let two = Two::new()?;
    let devices = |here: usize| {
        let link = |name, key| {
            format!("ip link add {name} type gre local 192.0.2.{here} remote 192.0.2.{} key {key}\n", 3 - here)
        };
        link("one", 1) + &link("two", 2) + "ip link set one up; ip link set two up\n"
    };
    two.near(&format!("{}ip addr add 10.9.0.0/32 dev lo; ip addr add fd00:9::/128 dev lo nodad", devices(1)))?;
    two.far(&devices(2))?;
    let mut ears = Ears::open(&two.near)?;
    let wire = index(&two.near, "wire")?;
    for (family, inner) in [Family::V4, Family::V6].into_iter().zip(INNER) {
        for name in ["one", "two"] {
            // What would be a reply-style probe of the near side is an answer to it from the far one.
            let packet = probe(STYLES[1], inner)?;
            send(&open(&two.far, name)?, &packet)?;
            let mut came = ears.hear(2)?;
            came.sort_unstable_by_key(|&(protocol, ..)| protocol == gre::PROTOCOL);
            let icmp = if family == Family::V4 { 1 } else { 58 };
            let by = index(&two.near, name)?;
            assert_eq!(came, [(icmp, by), (gre::PROTOCOL, wire)], "{family:?} by {name}");
        }
    }
    Ok(())
}

/// The receiving sockets of a prober.
struct Ears {
    _runtime: tokio::runtime::Runtime,
    clock: Clock,
    receivers: Vec<raw::Receiver>,
    inbox: Inbox,
}

impl Ears {
    fn open(namespace: &File) -> Result<Self, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let clock = Clock::start();
        let wanted = [(Family::V4, Protocol::Gre), (Family::V4, Protocol::Icmp), (Family::V6, Protocol::Icmp)];
        let open = |(family, protocol)| {
            let opened = netns::within(Some(namespace), || raw::open_receiver(family, protocol, Pass::Echoes))?;
            let _inside = runtime.enter();
            opened.register(clock.now())
        };
        let receivers = wanted.into_iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self { _runtime: runtime, clock, receivers, inbox: Inbox::default() })
    }

    /// So many packets: what each is, and by which device it came.
    fn hear(&mut self, count: usize) -> Result<Vec<(u8, u32)>, Failed> {
        let mut heard = Vec::new();
        holds_in_time(|| {
            for receiver in &mut self.receivers {
                receiver.drain(&self.clock, 0, &mut self.inbox)?;
            }
            self.inbox.deliver(|_, _, by, arrived| {
                let protocol = match arrived {
                    Arrived::V4(bytes) => bytes[9],
                    Arrived::V6 { protocol, .. } => protocol,
                };
                heard.push((protocol, by));
            });
            Ok((heard.len() >= count).then_some(()))
        })?
        .ok_or_else(|| format!("heard only {heard:?}").into())
        .map(|()| heard)
    }
}
