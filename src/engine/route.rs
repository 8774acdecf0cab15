//! A route as it was configured, where it is, and what the kernel makes of it.

use std::net::IpAddr;

use ipnet::IpNet;

/// Linux's main routing table (`RT_TABLE_MAIN`, rtnetlink(7)): what traffic looks into unless a policy
/// rule says otherwise.
pub const MAIN: u32 = 254;

/// Where routes are: a routing table of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The namespace by name; `None` is the one where adit runs.
    pub netns: Option<String>,
    /// The table.
    pub table: u32,
}

impl Place {
    /// Where a route is that says nothing about it.
    pub(super) const USUAL: Self = Self { netns: None, table: MAIN };
}

/// One configured way to a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix.
    pub prefix: IpNet,
    /// Where it is, by index of the places.
    pub place: u32,
    /// The tunnel, by index.
    pub tunnel: u32,
    /// Base priority: lower wins.
    pub priority: u32,
    /// Share among equal effective priorities, at least 1.
    pub weight: u32,
    /// Next hop for the kernel: device.
    pub device: Option<String>,
    /// Next hop for the kernel: gateway.
    pub via: Option<IpAddr>,
    /// The gateway is taken for a neighbour, whatever the addresses of the device say.
    pub onlink: bool,
}

impl Route {
    /// Whether the kernel can be told of it: it says where packets go next.
    #[must_use]
    pub const fn leads(&self) -> bool {
        self.device.is_some() || self.via.is_some()
    }
}

/// What the kernel makes of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum Standing {
    /// It lives in adit's own table only.
    #[default]
    NotManaged,
    /// It has not been asked for yet.
    Pending,
    /// The kernel has it, with this metric if it is another than the effective priority.
    Installed(Option<u32>),
    /// It waits for something: a device, say.
    Waiting(String),
    /// Somebody else has a route of the same table, prefix and metric.
    Conflict(String),
    /// The kernel does not take it.
    Refused(String),
}

impl Standing {
    /// The word for it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::NotManaged => "not managed",
            Self::Pending => "pending",
            Self::Installed(_) => "installed",
            Self::Waiting(_) => "waiting",
            Self::Conflict(_) => "conflict",
            Self::Refused(_) => "refused",
        }
    }

    /// The metric that the kernel has it with, of a route with this effective priority.
    #[must_use]
    pub fn metric(&self, effective: u32) -> Option<u32> {
        match self {
            Self::Installed(metric) => Some(metric.unwrap_or(effective)),
            Self::NotManaged | Self::Pending | Self::Waiting(_) | Self::Conflict(_) | Self::Refused(_) => None,
        }
    }

    /// Why the kernel does not have it, where there is more to say than the word.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Waiting(why) | Self::Conflict(why) | Self::Refused(why) => Some(why),
            Self::NotManaged | Self::Pending | Self::Installed(_) => None,
        }
    }
}
