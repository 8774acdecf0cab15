//! The stage: two namespaces, a cable between them, a far end in one and the prober in the other.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};
use tokio::sync::mpsc;

use crate::daemon::plan::Plan;
use crate::engine::health::Rules;
use crate::engine::settings::{Check, ReturnPath, Timeout};
use crate::engine::{Route, Tunnel};
use crate::io::raw::Leaving;
use crate::io::{links, netns};
use crate::reflect::FarTunnel;
use crate::reflect::plan::Fault;
use crate::reflect::run::{Sockets, run as reflect};
use crate::wire::{Direction, Ends, Family, Kind, Onion, Style, gre, payload};

/// The tunnel that is broken.
pub(super) const FIRST: &str = "amsterdam";
/// The tunnel that takes over.
pub(super) const BACKUP: &str = "frankfurt";
/// All of them.
pub(super) const NAMES: [&str; 3] = [FIRST, BACKUP, "paris"];
/// What traffic is steered for.
const PREFIX: &str = "10.20.0.0/16";
/// Time from one probe to the next.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// The short window: long enough for three outcomes, shorter than the time since the last success.
pub(super) const DOWN_WINDOW: Duration = Duration::from_millis(400);
/// Clean samples before the way back.
pub(super) const RECOVERY: u32 = 10;

/// The far end at work: its fault plan, and its thread.
pub(super) struct FarEnd {
    pub(super) faults: mpsc::Sender<Vec<Fault>>,
    pub(super) thread: JoinHandle<io::Result<()>>,
}

pub(super) struct Stage {
    far: File,
    window: Duration,
}

impl Stage {
    /// Enters a namespace of its own, inside a user namespace where that is needed, and makes
    /// another for the far end. Both end with this process.
    pub(super) fn build(window: Duration) -> io::Result<Self> {
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            netns::become_root_of_new_user_namespace()?;
        }
        let far = netns::make()?;
        links::connect("adit0", "far0", &far)?;
        links::configure(None, "adit0", &networks(&["192.0.2.1/24", "2001:db8::1/64"]))?;
        links::configure(Some(&far), "far0", &networks(&["192.0.2.11/24", "192.0.2.12/24", "2001:db8::13/64"]))?;
        Ok(Self { far, window })
    }

    /// Starts the far end on a thread of its own. It ends when the fault channel is closed.
    pub(super) fn start_far_end(&self) -> io::Result<FarEnd> {
        let sockets = netns::within(Some(&self.far), Sockets::open)?;
        let (plan, faults) = mpsc::channel(1);
        let tunnels = self.tunnels().into_iter().map(|tunnel| FarTunnel {
            name: tunnel.name,
            outer: tunnel.onion.outer.reversed(),
            inner: tunnel.onion.inner.reversed(),
            gre: tunnel.onion.gre,
        });
        let tunnels = tunnels.collect();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(reflect(sockets, tunnels, None, Vec::new(), faults))
        });
        Ok(FarEnd { faults: plan, thread })
    }

    /// What the prober is to do.
    pub(super) fn plan(&self) -> Plan {
        let route = |tunnel, priority| Route {
            prefix: networks(&[PREFIX])[0],
            tunnel,
            priority,
            weight: 1,
            device: None,
            via: None,
        };
        let leaving = |family| (0, Leaving { family, device: None, mark: 0 });
        Plan {
            tunnels: self.tunnels(),
            routes: vec![route(0, 100), route(1, 200)],
            namespaces: vec![None],
            egresses: vec![leaving(Family::V4), leaving(Family::V6)],
            access: None,
            record: None,
        }
    }

    fn tunnels(&self) -> Vec<Tunnel> {
        let [first, backup, third] = NAMES;
        let both = |kind| Style { kind, direction: Direction::Bidirectional };
        let one_way = Style { kind: Kind::Reply, direction: Direction::Unidirectional };
        vec![
            self.tunnel(
                first,
                both(Kind::Request),
                ["192.0.2.1", "192.0.2.11"],
                ["10.100.0.8", "10.100.0.9"],
                Some(4711),
            ),
            self.tunnel(backup, one_way, ["192.0.2.1", "192.0.2.12"], ["192.0.2.1", "192.0.2.12"], None),
            self.tunnel(
                third,
                both(Kind::Reply),
                ["2001:db8::1", "2001:db8::13"],
                ["fd00:100::8", "fd00:100::9"],
                None,
            ),
        ]
    }

    fn tunnel(&self, name: &str, style: Style, outer: [&str; 2], inner: [&str; 2], key: Option<u32>) -> Tunnel {
        let outer = ends(outer);
        Tunnel {
            name: name.to_owned(),
            onion: Onion {
                style,
                outer,
                gre: gre::Options { key, checksum: false, sequence: false },
                inner: ends(inner),
                ttl: 64,
                dscp: 48,
                size: u16::try_from(payload::LEN).unwrap_or(0),
            },
            check: Check {
                enabled: true,
                interval: INTERVAL,
                timeout: Timeout::Fixed(Duration::from_millis(250)),
                early_retry: true,
                return_path: ReturnPath::Strict,
                mark_key: None,
                rules: Rules {
                    degraded_window: self.window,
                    down_window: DOWN_WINDOW,
                    recovery_samples: RECOVERY,
                    ..Rules::default()
                },
            },
            namespace: 0,
            egress: match outer.family() {
                Family::V4 => 0,
                Family::V6 => 1,
            },
        }
    }
}

#[expect(clippy::expect_used, reason = "constants of this file, used at every start of the demo")]
fn ends([local, far]: [&str; 2]) -> Ends {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    Ends::new(address(local), address(far)).expect("one family")
}

#[expect(clippy::expect_used, reason = "constants of this file, used at every start of the demo")]
fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().expect("a network")).collect()
}
