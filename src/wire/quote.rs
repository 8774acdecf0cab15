//! ICMP errors about our probes: RFC 792, RFC 4443 section 3.
//!
//! An error quotes the packet that it is about. Anybody can send one, so it is a hint for a person
//! and never evidence; but one that quotes a probe whole, tag included, was at least written by
//! somebody on the path.

use std::net::IpAddr;

use super::payload::{self, Fields, Secret};
use super::probe::{Arrived, Path, peel, tagged};
use super::{Ends, Family, Kind, icmp, ip};

/// An error about one of this run's probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// The probe.
    pub fields: Fields,
    /// Who sent the error.
    pub from: IpAddr,
    /// What it says.
    pub says: &'static str,
}

/// Reads an ICMP error that quotes a probe of this run.
#[must_use]
pub fn parse(arrived: Arrived<'_>, secret: &Secret) -> Option<Quote> {
    let error = arrived.packet().ok()?;
    let (family, header) = (Ends::new(error.destination, error.source)?.family(), error.payload.first_chunk::<2>()?);
    let says = match (family, error.protocol) {
        (Family::V4, ip::ICMP) => meaning_v4(header[0], header[1])?,
        (Family::V6, ip::ICMPV6) => meaning_v6(header[0], header[1])?,
        _ => return None,
    };
    let quoted = error.payload.get(icmp::HEADER..)?;
    let outer = match family {
        Family::V4 => ip::parse_v4(quoted, ip::Layer::Outer),
        Family::V6 => ip::parse_v6(quoted, ip::Layer::Outer),
    };
    let probe = peel(outer.ok()?).ok()?;
    // The quoted packet is one that we sent: a request still has its source here.
    let ends = match probe.echo.kind {
        Kind::Request => probe.ends.reversed(),
        Kind::Reply => probe.ends,
    };
    let read = |ends| payload::parse(probe.echo.payload, ends, secret).ok();
    let plain = || (probe.path == Path::Bare).then(|| tagged(ends.far()));
    let (fields, _) = read(ends).or_else(|| read(plain()?))?;
    Some(Quote { fields, from: error.source, says })
}

fn meaning_v4(kind: u8, code: u8) -> Option<&'static str> {
    Some(match (kind, code) {
        (3, 0) => "network unreachable",
        (3, 1) => "host unreachable",
        (3, 2) => "protocol unreachable: it has no GRE at all",
        // What Linux says of a GRE packet that fits none of its tunnels.
        (3, 3) => "port unreachable: it has no such tunnel (endpoints or key)",
        (3, 4) => "fragmentation needed: the path's MTU is too small",
        (3, 9 | 10 | 13) => "administratively prohibited",
        (3, _) => "destination unreachable",
        (11, _) => "time exceeded: a routing loop, or a TTL too small",
        (12, _) => "parameter problem",
        _ => return None,
    })
}

fn meaning_v6(kind: u8, code: u8) -> Option<&'static str> {
    Some(match (kind, code) {
        (1, 0) => "no route to destination",
        (1, 1 | 5 | 6) => "administratively prohibited",
        (1, 3) => "address unreachable",
        (1, 4) => "port unreachable: it has no such tunnel (endpoints or key)",
        (1, _) => "destination unreachable",
        (2, _) => "packet too big: the path's MTU is too small",
        (3, _) => "time exceeded: a routing loop, or a hop limit too small",
        (4, 1) => "unrecognized next header: it has no GRE at all",
        (4, _) => "parameter problem",
        _ => return None,
    })
}
