//! What is to be steered, in one network namespace.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Rule;

/// How penalties become routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every route is in the kernel, with its effective priority as the metric.
    Metric,
    /// One route a prefix, over a group of next-hop objects; a verdict changes the group.
    Nexthop,
}

/// One configured way to a prefix, as far as the kernel is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// Which of the configured routes it is, by index.
    pub route: u32,
    /// The tunnel that it goes through, by index.
    pub tunnel: u32,
    /// The routing table.
    pub table: u32,
    /// The destination.
    pub prefix: IpNet,
    /// Base priority.
    pub priority: u32,
    /// Share among equal effective priorities, 1 to 256.
    pub weight: u16,
    /// The device; without one the kernel finds it by `via`.
    pub device: Option<String>,
    /// The gateway.
    pub via: Option<IpAddr>,
    /// The gateway is taken for a neighbour, whatever the addresses of the device say.
    pub onlink: bool,
}

/// All that is to be in the kernel of one network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// How penalties become routes.
    pub mode: Mode,
    /// Whether every prefix has an unreachable route of the highest metric.
    pub backstop: bool,
    /// The ways, in the order of the configuration.
    pub legs: Vec<Leg>,
    /// Policy rules.
    pub rules: Vec<Rule>,
    /// How many tunnels there are.
    pub tunnels: usize,
}

impl Setup {
    /// Nothing at all.
    #[must_use]
    pub const fn nothing(tunnels: usize) -> Self {
        Self { mode: Mode::Metric, backstop: false, legs: Vec::new(), rules: Vec::new(), tunnels }
    }
}
