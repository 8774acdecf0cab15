//! Four devices and three namespaces: a sender, a host whose routes are steered, a receiver.
//!
//! ```text
//!  sender                host                     receiver
//!  ┌─────────┐  ┌─────────────────────────┐  ┌──────────────┐
//!  │ 10.0.0.1├──┤ 10.0.0.0     10.1.0.0 t1├──┤ far1 10.1.0.1│  many prefixes,
//!  │         │  │              10.2.0.0 t2├──┤ far2 10.2.0.1│  one address of the middle one
//!  └─────────┘  └─────────────────────────┘  └──────────────┘
//! ```

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;

use adit::io::netns;
use ipnet::{IpNet, Ipv4Net};

/// The first of the prefixes, which are /24 one behind the other.
const FIRST: u32 = 0x1400_0000;

pub(crate) struct Stage {
    pub(crate) sender: File,
    pub(crate) host: File,
    pub(crate) receiver: File,
    pub(crate) prefixes: Vec<IpNet>,
}

impl Stage {
    /// `quiet`: the host announces groups of next hops only, not each route over them.
    pub(crate) fn new(count: u32, quiet: bool) -> Self {
        let prefix = |number: u32| Ipv4Net::new(Ipv4Addr::from(FIRST + (number << 8)), 24).unwrap().into();
        let [sender, host, receiver] = std::array::from_fn(|_| netns::make().unwrap());
        let stage = Self { sender, host, receiver, prefixes: (0..count).map(prefix).collect() };
        stage.build();
        if quiet {
            netns::within(Some(&stage.host), || adit::io::fib::set_notify_routes(false)).unwrap();
        }
        stage
    }

    /// Where the stream goes: to the middle prefix.
    pub(crate) fn destination(&self) -> Ipv4Addr {
        match self.prefixes[self.prefixes.len() / 2] {
            IpNet::V4(prefix) => Ipv4Addr::from(u32::from(prefix.network()) + 1),
            IpNet::V6(_) => unreachable!("all are IPv4"),
        }
    }

    fn build(&self) {
        let peer = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let (sender, receiver) = (peer(&self.sender), peer(&self.receiver));
        sh(
            &self.host,
            &format!(
                "ip link add in type veth peer name out netns {sender}
             ip addr add 10.0.0.0/31 dev in; ip link set in up
             for n in 1 2; do
               ip link add t$n type veth peer name far$n netns {receiver}
               ip addr add 10.$n.0.0/31 dev t$n; ip link set t$n up
             done
             echo 1 > /proc/sys/net/ipv4/ip_forward"
            ),
        );
        sh(&self.sender, "ip addr add 10.0.0.1/31 dev out; ip link set out up; ip route add default via 10.0.0.0");
        let destination = self.destination();
        sh(
            &self.receiver,
            &format!(
                "for c in all default far1 far2; do echo 0 > /proc/sys/net/ipv4/conf/$c/rp_filter; done
             for n in 1 2; do ip addr add 10.$n.0.1/31 dev far$n; ip link set far$n up; done
             ip link set lo up; ip addr add {destination}/32 dev lo"
            ),
        );
        // Tunnels need no ARP, and no packet shall be counted that waits for it.
        sh(
            &self.host,
            "for n in 1 2; do
               ping -q -c 1 -W 5 10.$n.0.1 >/dev/null
               neighbour=$(ip neigh show 10.$n.0.1 | sed 's/.*lladdr //; s/ .*//')
               ip neigh replace 10.$n.0.1 dev t$n nud permanent lladdr $neighbour
             done",
        );
        sh(&self.sender, "ping -q -c 1 -W 5 10.0.0.0 >/dev/null");
    }
}

/// Runs a shell script in a namespace.
pub(crate) fn sh(namespace: &File, script: &str) {
    let output = netns::within(Some(namespace), || Command::new("sh").args(["-ec", script]).output()).unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}
