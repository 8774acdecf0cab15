//! A third party: a namespace of its own with a cable to the prober's, from which anything may be sent, under
//! any address.

use std::fs::{self, File};
use std::net::IpAddr;

use adit::io::{links, netns};
use adit::wire::checksum;

use crate::by_hand::Injector;
use crate::kit::{NEAR, Pair, address, await_cable};

/// Packets that are sent at once; the prober's queue holds more.
const VOLLEY: usize = 1_000;

pub(crate) struct Stranger {
    _namespace: File,
    injector: Injector,
}

impl Stranger {
    /// Moves in beside the prober, which minds no wrong sources.
    pub(crate) fn beside(pair: &Pair) -> Self {
        let namespace = netns::make().unwrap();
        netns::within(Some(&pair.near), || links::connect("near1", "evil0", &namespace)).unwrap();
        let with = |text: &str| vec![text.parse().unwrap()];
        links::configure(Some(&pair.near), "near1", &with("198.51.100.1/24")).unwrap();
        links::configure(Some(&namespace), "evil0", &with("198.51.100.66/24")).unwrap();
        let trust = || {
            ["all", "near1"]
                .iter()
                .try_for_each(|name| fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0"))
        };
        netns::within(Some(&pair.near), trust).unwrap();
        crate::steering::net::ip(&namespace, "route add 192.0.2.1 via 198.51.100.1");
        await_cable([(&pair.near, "198.51.100.1"), (&namespace, "198.51.100.66")]);
        let injector = Injector::open(&namespace);
        Self { _namespace: namespace, injector }
    }

    /// Sends packets to the prober's address.
    pub(crate) fn send(&self, packets: &[Vec<u8>]) {
        let packets: Vec<_> = packets.iter().map(|packet| (address(NEAR[0]), packet.clone())).collect();
        self.injector.send(&packets);
    }

    /// Sends one packet very often, as fast as that goes.
    pub(crate) fn flood(&self, packet: &[u8], times: usize) {
        let volley = vec![packet.to_vec(); VOLLEY];
        (0..times.div_ceil(VOLLEY)).for_each(|_| self.send(&volley));
    }
}

/// An IPv4 packet.
pub(crate) fn ipv4([source, destination]: [&str; 2], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let octets = |text| match address(text) {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => panic!("an IPv4 address"),
    };
    let [high, low] = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 0, high, low, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    packet.extend(octets(source));
    packet.extend(octets(destination));
    let sum = checksum::of(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// An ICMP message: type, code, the four bytes after the checksum, the rest.
pub(crate) fn icmp([kind, code]: [u8; 2], rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest);
    message.extend(payload);
    let sum = checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}
