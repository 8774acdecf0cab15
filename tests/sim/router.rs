//! What a far router does with the probes of a diagnosis, setting by setting (IPv4 in GRE).

use std::collections::BTreeSet;
use std::net::IpAddr;

use adit::engine::Time;
use adit::wire::Onion;

use super::far::{answer_of, decapsulate, encapsulate};

#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "a router has so many settings")]
pub(crate) struct Router {
    /// The bare path is there, and it answers pings.
    pub(crate) answers_pings: bool,
    /// It has the tunnel.
    pub(crate) has_tunnel: bool,
    /// `icmp_echo_ignore_all = 0`.
    pub(crate) answers_requests: bool,
    /// `ip_forward = 1`.
    pub(crate) forwards: bool,
    pub(crate) accept_local: bool,
    /// `rp_filter = 1`.
    pub(crate) rp_filter: bool,
    /// `ct state invalid drop`, when it forwards.
    pub(crate) drops_invalid: bool,
    /// The same, for what arrives at this side.
    pub(crate) near_drops_invalid: bool,
    /// It routes what is for the near inner address into the tunnel; else bare.
    pub(crate) returns_inside: bool,
    /// And what is bare then arrives.
    pub(crate) leaks: bool,
    /// Targets that answer no requests.
    pub(crate) silent: Vec<IpAddr>,
    /// A flow of this identifier leads nowhere.
    pub(crate) pinned: Option<u16>,
    /// The longest packet that the path takes, and the longest that this side's link does.
    pub(crate) path: usize,
    pub(crate) link: usize,
    /// So many probes have been sent.
    pub(crate) legs: u32,
    /// Numbers that GRE packets among them bore, and when they came.
    pub(crate) numbers: Vec<(Time, u32)>,
    /// Identifiers of requests, inside and bare, as connection tracking has them.
    tracked: BTreeSet<[u8; 2]>,
    tracked_bare: BTreeSet<[u8; 2]>,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            answers_pings: true,
            has_tunnel: true,
            answers_requests: true,
            forwards: true,
            accept_local: true,
            rp_filter: false,
            drops_invalid: false,
            near_drops_invalid: false,
            returns_inside: true,
            leaks: false,
            silent: Vec::new(),
            pinned: None,
            path: 1500,
            link: 1500,
            legs: 0,
            numbers: Vec::new(),
            tracked: BTreeSet::new(),
            tracked_bare: BTreeSet::new(),
        }
    }
}

impl Router {
    /// A packet leaves for it; notes the number that it bears, if it is one of GRE without checksum and key.
    pub(crate) fn note(&mut self, at: Time, sent: &[u8]) {
        self.legs += 1;
        if sent[9] == 47 && sent[20] == 0x10 {
            self.numbers.extend(sent[24..].first_chunk().map(|number| (at, u32::from_be_bytes(*number))));
        }
    }

    /// What comes back for a packet.
    pub(crate) fn treat(&mut self, sent: &[u8], via: &Onion) -> Option<Vec<u8>> {
        if sent.len() > self.path {
            return None;
        }
        if sent[9] == 1 {
            self.tracked_bare.insert([sent[24], sent[25]]);
            return self.answers_pings.then(|| answer_of(sent));
        }
        let inner = decapsulate(sent);
        let (id, is_request) = ([inner[24], inner[25]], inner[20] == 8);
        let is_of = |at: usize, address: IpAddr| IpAddr::from(*inner[at..].first_chunk::<4>().unwrap()) == address;
        let own = [via.outer.far(), via.inner.far()];
        let from_outside = is_of(12, via.outer.local());
        let is_public = from_outside || is_of(16, via.outer.local());
        if !self.has_tunnel || self.pinned.map(u16::to_be_bytes) == Some(id) || is_public && self.rp_filter {
            return None;
        }
        if is_request {
            self.tracked.insert(id);
            if !self.answers_requests || self.silent.iter().any(|silent| is_of(16, *silent)) {
                return None;
            }
        } else {
            let is_local = own.iter().any(|own| is_of(12, *own));
            let is_invalid = !self.tracked.contains(&id) && !self.tracked_bare.contains(&id);
            if !self.forwards || is_local && !self.accept_local || self.drops_invalid && is_invalid {
                return None;
            }
        }
        let answer = answer_of(inner);
        if is_public {
            let passes = !self.near_drops_invalid || self.tracked_bare.contains(&id);
            return passes.then_some(answer);
        }
        match (self.returns_inside, self.leaks) {
            (true, _) => Some(encapsulate(&answer, via)),
            (false, true) => Some(answer),
            (false, false) => None,
        }
    }
}
