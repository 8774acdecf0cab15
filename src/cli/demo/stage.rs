//! The stage: two namespaces, a cable between them, a far end in one and the prober in the other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::thread::JoinHandle;
use std::time::Duration;

use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::config::{Kernel, Place};
use crate::daemon::plan::{Exit, Plan};
use crate::daemon::records::begun;
use crate::daemon::steer::Steering;
use crate::engine::health::Rules;
use crate::engine::settings::{Check, ReturnPath, Source, Terms, Timeout};
use crate::engine::{MAIN, Material, Pair, Route, Tunnel};
use crate::io::raw::Leaving;
use crate::io::{links, netns};
use crate::reflect::plan::Fault;
use crate::reflect::run::{Sockets, run as reflect};
use crate::reflect::{FarTunnel, Wrap};
use crate::wire::esp::{Algorithm, Keys, Shape};
use crate::wire::{Direction, Encapsulation, Ends, Family, Kind, Onion, Style, gre, payload};

/// The tunnel that is broken.
pub(super) const FIRST: &str = "amsterdam";
/// The tunnel that takes over.
pub(super) const BACKUP: &str = "frankfurt";
/// All of them.
pub(super) const NAMES: [&str; 4] = [FIRST, BACKUP, "paris", "london"];
/// The index of the ESP tunnel, and how its probes are sealed.
const ESP: u32 = 3;
const ALGORITHM: Algorithm = Algorithm::Aes256Gcm;
/// What traffic is steered for, and an address in it.
const PREFIX: &str = "10.20.0.0/16";
pub(super) const DESTINATION: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 20, 0, 1));
/// Where the kernel sends it: to the far ends of the first tunnel and of its backup.
pub(super) const GATEWAYS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 11)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 12))];
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
    /// Of the ESP tunnel: fresh at each start, and nowhere else.
    material: Material,
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
        links::configure(
            Some(&far),
            "far0",
            &networks(&["192.0.2.11/24", "192.0.2.12/24", "2001:db8::13/64", "192.0.2.14/24"]),
        )?;
        Ok(Self { far, window, material: material()? })
    }

    /// Starts the far end on a thread of its own. It ends when the fault channel is closed.
    pub(super) fn start_far_end(&self) -> io::Result<FarEnd> {
        let sockets = netns::within(Some(&self.far), Sockets::open)?;
        let (plan, faults) = mpsc::channel(1);
        let pair = begun(&self.material.reversed())?;
        let mut pair = Some(Box::new(pair));
        let tunnels: Vec<FarTunnel> = self.tunnels().iter().filter_map(|tunnel| far(tunnel, &mut pair)).collect();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(reflect(sockets, tunnels, None, Vec::new(), faults))
        });
        Ok(FarEnd { faults: plan, thread })
    }

    /// What the prober is to do.
    pub(super) fn plan(&self) -> Plan {
        let route = |tunnel, priority, via: IpAddr| Route {
            prefix: networks(&[PREFIX])[0],
            tunnel,
            priority,
            weight: 1,
            device: None,
            via: Some(via),
            place: 0,
            onlink: false,
        };
        let routes = vec![route(0, 100, GATEWAYS[0]), route(1, 200, GATEWAYS[1])];
        let places = [Place { netns: None, table: MAIN }];
        let kernel = Kernel { apply: true, ..Kernel::default() };
        let leaving = |family| (0, Exit::Raw(Leaving { family, device: None, mark: 0, source: None }));
        Plan {
            bearings: BTreeMap::new(),
            fail_static: None,
            endpoints: Vec::new(),
            steering: Steering::new(kernel, &routes, &places, &[], NAMES.len()),
            tunnels: self.tunnels(),
            routes,
            places: places.iter().map(Place::named).collect(),
            namespaces: vec![None],
            egresses: vec![leaving(Family::V4), leaving(Family::V6)],
            material: BTreeMap::from([(ESP, self.material.clone())]),
            state_dir: None,
            access: None,
            record: None,
            epoch: 0,
        }
    }

    fn tunnels(&self) -> Vec<Tunnel> {
        let [first, backup, third, fourth] = NAMES;
        let gre = |key| Encapsulation::Gre(gre::Options { key, checksum: false, sequence: false });
        let both = |kind| Style { kind, direction: Direction::Bidirectional };
        let one_way = Style { kind: Kind::Reply, direction: Direction::Unidirectional };
        vec![
            self.tunnel(
                first,
                both(Kind::Request),
                ["192.0.2.1", "192.0.2.11"],
                ["10.100.0.8", "10.100.0.9"],
                gre(Some(4711)),
            ),
            self.tunnel(backup, one_way, ["192.0.2.1", "192.0.2.12"], ["192.0.2.1", "192.0.2.12"], gre(None)),
            self.tunnel(
                third,
                both(Kind::Reply),
                ["2001:db8::1", "2001:db8::13"],
                ["fd00:100::8", "fd00:100::9"],
                gre(None),
            ),
            self.tunnel(
                fourth,
                both(Kind::Request),
                ["192.0.2.1", "192.0.2.14"],
                ["10.100.0.10", "10.100.0.11"],
                Encapsulation::Esp(Shape::new(ALGORITHM, false)),
            ),
        ]
    }

    fn tunnel(
        &self,
        name: &str,
        style: Style,
        outer: [&str; 2],
        inner: [&str; 2],
        encapsulation: Encapsulation,
    ) -> Tunnel {
        let outer = ends(outer);
        Tunnel {
            name: name.to_owned(),
            onion: Onion {
                style,
                outer,
                encapsulation,
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
            terms: match encapsulation {
                Encapsulation::Esp(_) => Some(Terms { source: Source::Installed, esn: true, replay_window: 64 }),
                Encapsulation::Gre(_) | Encapsulation::Device => None,
            },
            exit: 0,
            interface: None,
            targets: None,
        }
    }
}

/// A tunnel from the far end's side; the one ESP tunnel takes the pair.
fn far(tunnel: &Tunnel, pair: &mut Option<Box<Pair>>) -> Option<FarTunnel> {
    let wrap = match tunnel.onion.encapsulation {
        Encapsulation::Gre(options) => Wrap::Gre(options),
        Encapsulation::Esp(shape) => Wrap::Esp { pair: pair.take()?, udp: shape.udp() },
        Encapsulation::Device => return None,
    };
    let (outer, inner) = (tunnel.onion.outer.reversed(), tunnel.onion.inner.reversed());
    Some(FarTunnel { name: tunnel.name.clone(), outer, inner, further: Vec::new(), wrap })
}

/// Fresh random keys.
fn material() -> io::Result<Material> {
    let key = || {
        let mut bytes = Zeroizing::new(vec![0; ALGORITHM.key_len()]);
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Keys::new(ALGORITHM, bytes).ok_or_else(|| io::Error::other("a key of a wrong length"))
    };
    Ok(Material { spi_out: 0x1001, spi_in: 0x2001, key_out: key()?, key_in: key()?, esn: true, replay_window: 64 })
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
