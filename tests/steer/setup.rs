//! Configurations.

use std::net::IpAddr;

use adit::steer::{Leg, Mode, Rule, Setup};
use adit::wire::Family;
use ipnet::IpNet;

pub(crate) const V4: &str = "10.20.0.0/16";
pub(crate) const V6: &str = "2001:db8:20::/48";
pub(crate) const BOTH: [&str; 2] = [V4, V6];
pub(crate) const DEGRADED: u32 = 500_000;
pub(crate) const DOWN: u32 = 1_000_000;

/// The far end of a tunnel.
pub(crate) fn gateway(prefix: &IpNet, tunnel: u32) -> IpAddr {
    let text = match prefix {
        IpNet::V4(_) => format!("10.100.{tunnel}.2"),
        IpNet::V6(_) => format!("fd00:{tunnel}::2"),
    };
    text.parse().unwrap()
}

/// A way through tunnel N, by device greN and its gateway.
pub(crate) fn leg(prefix: &str, tunnel: u32, priority: u32) -> Leg {
    let prefix: IpNet = prefix.parse().unwrap();
    Leg {
        route: tunnel,
        tunnel,
        table: 254,
        prefix,
        priority,
        weight: 1,
        device: Some(format!("gre{tunnel}")),
        via: Some(gateway(&prefix, tunnel)),
        onlink: false,
    }
}

pub(crate) fn bare(leg: Leg) -> Leg {
    Leg { via: None, ..leg }
}

pub(crate) fn heavy(leg: Leg, weight: u16) -> Leg {
    Leg { weight, ..leg }
}

pub(crate) fn setup(mode: Mode, legs: impl IntoIterator<Item = Leg>) -> Setup {
    let legs: Vec<Leg> = (0..).zip(legs).map(|(route, leg)| Leg { route, ..leg }).collect();
    let tunnels = legs.iter().map(|leg| leg.tunnel as usize + 1).max().unwrap_or(0);
    Setup { mode, backstop: false, legs, rules: Vec::new(), tunnels }
}

/// Two tunnels for each prefix, the first one preferred.
pub(crate) fn pair(mode: Mode) -> Setup {
    setup(mode, BOTH.into_iter().flat_map(|prefix| [leg(prefix, 0, 100), leg(prefix, 1, 200)]))
}

/// Three tunnels that share each prefix by weight.
pub(crate) fn shared(mode: Mode) -> Setup {
    let legs = BOTH
        .into_iter()
        .flat_map(|prefix| (0..3_u16).map(move |tunnel| heavy(leg(prefix, tunnel.into(), 100), tunnel + 1)));
    setup(mode, legs)
}

pub(crate) fn rule(priority: u32, table: u32) -> Rule {
    Rule {
        family: Family::V4,
        priority,
        table,
        source: Some("172.64.240.252/30".parse().unwrap()),
        destination: None,
        fwmark: None,
        protocol: None,
        ports: None,
    }
}
