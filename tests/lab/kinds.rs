//! Tunnel devices of every kind, named `tun9`, between the two namespaces.

use std::io;

use adit::io::netns;
use libtest_mimic::Failed;

use crate::router::run;
use crate::two::Two;

/// One kind of tunnel device, as an operator would make it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// How the device is made; L and R stand for this side's endpoint and the other's.
    link: &'static str,
    outer_v6: bool,
    /// Protocol of the outer packets.
    pub(crate) protocol: u8,
    /// Families of the inner packets: whether IPv6.
    pub(crate) inner: &'static [bool],
    /// Whether the kernel seals the inner packets.
    pub(crate) sealed: bool,
    keys: Keys,
}

#[derive(Debug, Clone, Copy)]
enum Keys {
    None,
    /// Security associations and policies with this selector, which the device has, too.
    Xfrm(&'static str),
    Wireguard,
}

const BOTH: &[bool] = &[false, true];
const PLAIN: Kind =
    Kind { name: "", link: "", outer_v6: false, protocol: 0, inner: BOTH, sealed: false, keys: Keys::None };

pub(crate) const KINDS: [Kind; 9] = [
    Kind { name: "gre", link: "ip link add tun9 type gre local L remote R ttl 64", protocol: 47, ..PLAIN },
    Kind {
        name: "ip6gre",
        link: "ip link add tun9 type ip6gre local L remote R encaplimit none",
        outer_v6: true,
        protocol: 47,
        ..PLAIN
    },
    Kind {
        name: "ipip",
        link: "ip link add tun9 type ipip local L remote R ttl 64",
        protocol: 4,
        inner: &[false],
        ..PLAIN
    },
    Kind {
        name: "sit",
        link: "ip link add tun9 type sit local L remote R ttl 64",
        protocol: 41,
        inner: &[true],
        ..PLAIN
    },
    Kind {
        name: "vti",
        link: "ip link add tun9 type vti local L remote R key 42",
        protocol: 50,
        sealed: true,
        keys: Keys::Xfrm("mark 42"),
        ..PLAIN
    },
    Kind {
        name: "vti6",
        link: "ip link add tun9 type vti6 local L remote R key 42",
        outer_v6: true,
        protocol: 50,
        sealed: true,
        keys: Keys::Xfrm("mark 42"),
        ..PLAIN
    },
    Kind {
        name: "xfrm",
        link: "ip link add tun9 type xfrm dev wire if_id 42",
        protocol: 50,
        sealed: true,
        keys: Keys::Xfrm("if_id 42"),
        ..PLAIN
    },
    Kind {
        name: "wireguard",
        link: "ip link add tun9 type wireguard",
        protocol: 17,
        sealed: true,
        keys: Keys::Wireguard,
        ..PLAIN
    },
    Kind { name: "gretap", link: "ip link add tun9 type gretap local L remote R", protocol: 47, ..PLAIN },
];

/// Not among the others, because it has one protocol for each inner family.
pub(crate) const IP6TNL: Kind = Kind {
    name: "ip6tnl",
    link: "ip link add tun9 type ip6tnl mode any local L remote R encaplimit none",
    outer_v6: true,
    ..PLAIN
};

/// The kind of that name.
#[expect(clippy::expect_used, reason = "a name in this program that is wrong ends the test")]
pub(crate) fn kind(name: &str) -> Kind {
    KINDS.into_iter().find(|kind| kind.name == name).expect("a known kind")
}

impl Kind {
    /// Why it cannot be made here, if so; tried in a namespace that ends with it.
    pub(crate) fn missing(self) -> Option<String> {
        let tried = netns::make().and_then(|namespace| netns::within(Some(&namespace), || run(&self.make(1, 2))));
        let keys = match self.keys {
            Keys::Wireguard => wireguard_keys().map(drop),
            Keys::None | Keys::Xfrm(_) => Ok(()),
        };
        tried.and(keys).err().map(|error| error.to_string())
    }

    /// Makes the device at both ends, up, with 10.9.0.0/31 and `fd00:9::/127` inside.
    pub(crate) fn join(self, two: &Two) -> Result<(), Failed> {
        let keys = match self.keys {
            Keys::Wireguard => Some(wireguard_keys()?),
            Keys::None | Keys::Xfrm(_) => None,
        };
        for (here, there) in [(1, 2), (2, 1)] {
            let device = format!(
                "{}\n{}
                 ip addr add 10.9.0.{}/31 dev tun9; ip addr add fd00:9::{}/127 dev tun9 nodad; ip link set tun9 up",
                self.make(here, there),
                self.key(here, there, keys.as_ref()),
                here - 1,
                here - 1
            );
            if here == 1 { two.near(&device)? } else { two.far(&device)? }
        }
        Ok(())
    }

    fn endpoint(self, side: usize) -> String {
        if self.outer_v6 { format!("2001:db8::{side}") } else { format!("192.0.2.{side}") }
    }

    fn make(self, here: usize, there: usize) -> String {
        // The device that an xfrm interface is tied to must be there.
        let wire = "ip link show wire >/dev/null 2>&1 || ip link add wire type veth peer name eriw\n";
        let link = self.link.replace(" L", &format!(" {}", self.endpoint(here)));
        format!("{wire}{}", link.replace(" R", &format!(" {}", self.endpoint(there))))
    }

    fn key(self, here: usize, there: usize, keys: Option<&[[String; 2]; 2]>) -> String {
        let (l, r) = (self.endpoint(here), self.endpoint(there));
        match (self.keys, keys) {
            (Keys::Xfrm(selector), _) => xfrm(&l, &r, selector, 0x1001),
            (Keys::Wireguard, Some(keys)) => {
                let ([private, _], [_, public]) = (&keys[here - 1], &keys[there - 1]);
                // A reply-style probe goes to the peer, but to our own address: so both addresses.
                format!(
                    "echo {private} | wg set tun9 listen-port 51820 private-key /proc/self/fd/0 \
                     peer {public} endpoint {r}:51820 allowed-ips 10.9.0.0/31,fd00:9::/127"
                )
            }
            _ => String::new(),
        }
    }
}

/// Security associations and policies of one side, for all that goes through the device.
pub(crate) fn xfrm(l: &str, r: &str, selector: &str, spi: usize) -> String {
    let state = |from: &str, to: &str| {
        format!(
            "ip xfrm state add src {from} dst {to} proto esp spi {spi:#x} mode tunnel flag af-unspec {selector} \
             aead 'rfc4106(gcm(aes))' 0x{} 128\n",
            "4b".repeat(20)
        )
    };
    let mut script = state(l, r) + &state(r, l);
    for any in ["0.0.0.0/0", "::/0"] {
        for (direction, from, to) in [("out", l, r), ("in", r, l), ("fwd", r, l)] {
            script.push_str(&format!(
                "ip xfrm policy add src {any} dst {any} dir {direction} {selector} \
                 tmpl src {from} dst {to} proto esp mode tunnel\n"
            ));
        }
    }
    script
}

/// A private and a public key for each side.
fn wireguard_keys() -> io::Result<[[String; 2]; 2]> {
    let pair = || {
        let script = "set -e; private=$(wg genkey); echo $private; echo $private | wg pubkey";
        let output = std::process::Command::new("sh").args(["-c", script]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines().map(str::to_owned);
        match (lines.next(), lines.next()) {
            (Some(private), Some(public)) => Ok([private, public]),
            _ => Err(io::Error::other("wg makes no keys (Debian package wireguard-tools)")),
        }
    };
    Ok([pair()?, pair()?])
}
