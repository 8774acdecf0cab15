//! By which device a packet comes, and by which it can leave. What only a kernel with tunnel devices
//! can show is in the lab's trials.

use std::fs::File;
use std::io::ErrorKind;

use adit::io::clock::Clock;
use adit::io::raw::{self, Inbox};
use adit::io::{device, netns, xfrm};
use adit::wire::filter::{Pass, Protocol};
use adit::wire::probe::{Stamp, Template};
use adit::wire::{Family, payload};
use nix::net::if_::if_nametoindex;

use crate::by_hand::Injector;
use crate::kit::{FAR, NEAR, Pair, REPLY, address, eventually, tunnel_of};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("devices::a_packet_is_known_by_the_device_it_came_by", a_packet_is_known_by_the_device_it_came_by),
        case("devices::one_that_is_no_tunnel_is_refused_with_the_remedy", one_that_is_no_tunnel_is_refused),
        case("devices::associations_of_a_new_namespace_are_none", associations_of_a_new_namespace_are_none),
    ]
}

fn index(namespace: &File, name: &str) -> u32 {
    netns::within(Some(namespace), || Ok(if_nametoindex(name)?)).unwrap()
}

/// Encapsulated and bare, in both families, over the cable and from this host itself.
fn a_packet_is_known_by_the_device_it_came_by() {
    let pair = Pair::new();
    for (family, at) in [(Family::V4, 0), (Family::V6, 1)] {
        let mut tunnel = tunnel_of("t", REPLY, [FAR[at], NEAR[at]], at);
        let encapsulated = probe(&tunnel);
        // The other way round and without its outer headers, it is an answer.
        tunnel.onion.inner = crate::kit::ends([NEAR[at], FAR[at]]);
        let bare = probe(&tunnel).split_off(Template::new(&tunnel.onion).len() - inner_length(at));
        for (protocol, packet) in [(Protocol::Gre, encapsulated), (Protocol::Icmp, bare)] {
            for (from, whose) in [(&pair.far, "the far side's"), (&pair.near, "this host's own")] {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let clock = Clock::start();
                let open = || raw::open_receiver(family, protocol, Pass::Echoes);
                let opened = netns::within(Some(&pair.near), open).unwrap();
                let mut ear = runtime.block_on(async { opened.register(clock.now()) }).unwrap();
                Injector::of(from, family).send(&[(address(NEAR[at]), packet.clone())]);
                let (mut inbox, mut by) = (Inbox::default(), Vec::new());
                eventually("the packet", || {
                    ear.drain(&clock, 0, &mut inbox).unwrap();
                    inbox.deliver(|_, _, interface, _| by.push(interface));
                    !by.is_empty()
                });
                // What this host sends to itself goes over lo, but is said to come by the device that
                // has the address.
                assert_eq!(by, [index(&pair.near, "near0")], "{whose} packet, {family:?} {protocol:?}");
            }
        }
    }
}

fn probe(tunnel: &adit::engine::Tunnel) -> Vec<u8> {
    let stamp = Stamp { fields: payload::Fields { tunnel: 0, sequence: 1, sent: 1 }, identifier: 1, ip_id: 1 };
    let secret = payload::Secret { key: payload::Key::new([7; 16]), epoch: 1 };
    let template = Template::new(&tunnel.onion);
    let mut bytes = vec![0; template.len()];
    assert_eq!(template.emit(&stamp, &secret, None, &mut bytes), Some(bytes.len()));
    bytes
}

const fn inner_length(family: usize) -> usize {
    [20, 40][family] + 8 + payload::LEN
}

fn one_that_is_no_tunnel_is_refused() {
    let pair = Pair::new();
    let refusal = |name| netns::within(Some(&pair.near), || device::open(name, false)).unwrap_err();
    for (name, kind, words) in [
        ("near0", ErrorKind::InvalidInput, "near0 is an Ethernet-like device (hardware type 1)"),
        ("lo", ErrorKind::InvalidInput, "lo is no layer-3 tunnel device (hardware type 772)"),
        ("gre9", ErrorKind::NotFound, "there is no device gre9 here"),
        ("far0", ErrorKind::NotFound, "there is no device far0 here"),
    ] {
        let error = refusal(name);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().starts_with(words), "{error}");
    }
    assert!(refusal("near0").to_string().contains("leave `device` away"));
}

/// Many a kernel has no XFRM at all.
fn associations_of_a_new_namespace_are_none() {
    let namespace = netns::make().unwrap();
    match netns::within(Some(&namespace), xfrm::open) {
        Ok(opened) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut watch = runtime.block_on(async { opened.register() }).unwrap();
            assert!(watch.associations().unwrap().is_empty());
            assert!(!watch.changed().unwrap());
        }
        Err(error) => {
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unsupported, "this kernel has no XFRM"));
        }
    }
}
