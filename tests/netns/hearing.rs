//! What others change in the kernel's routes is heard, and what we change is not.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::Write;
use std::process::{Command, Stdio};

use adit::io::fib::{Heard, Listener, Monitor, News, notify_routes, set_notify_routes};
use adit::io::netns;
use adit::steer::{Change, Way};
use adit::wire::Family;
use ipnet::IpNet;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tokio::runtime::Runtime;

use crate::fib::{Net, group, hops, route, single};
use crate::fib_edges::many;
use crate::kit::{PATIENCE, eventually, ms};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let cases: [(&str, fn()); 6] = [
        ("what_others_change_is_heard_by_name", others),
        ("what_we_change_ourselves_is_not_heard_however_much_it_is", ourselves),
        ("more_than_there_is_room_for_is_heard_as_such", overrun),
        ("who_listens_is_woken_and_sleeps_again", woken),
        ("the_kernel_can_be_told_not_to_announce_each_route_over_an_object", quiet_routes),
        ("where_that_cannot_be_told_the_remedy_is_named", remedy),
    ];
    cases.into_iter().map(|(name, run)| case(format!("hearing::{name}"), run).with_iproute()).collect()
}

/// A net, and a monitor over it on a runtime of its own.
struct Listening {
    monitor: Monitor,
    runtime: Runtime,
    net: Net,
}

impl Listening {
    fn new(buffer: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (net, listener): (Net, Listener) = Net::listening(buffer);
        let monitor = runtime.block_on(async { listener.register() }).unwrap();
        let mut listening = Self { monitor, runtime, net };
        listening.heard();
        listening
    }

    /// What was heard; of foreign routes only those in table 77 concern us.
    fn heard(&mut self) -> Heard {
        self.monitor.heard(|table, _| table == 77).unwrap()
    }

    /// The same but for what the kernel itself finds out about a new device, at any time.
    fn routes_heard(&mut self) -> BTreeSet<News> {
        match self.heard() {
            Heard::Nothing => BTreeSet::new(),
            Heard::Changed(mut news) => {
                news.retain(|one| !matches!(one, News::Link(_) | News::Address(_)));
                news
            }
            Heard::Overrun => panic!("there is room"),
        }
    }

    /// Whether there are news within a time.
    fn woken(&self, limit: std::time::Duration) -> bool {
        let ready = poll_fn(|context| self.monitor.poll_ready(context));
        self.runtime.block_on(async { tokio::time::timeout(limit, ready).await }).is_ok()
    }
}

fn prefix(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn others() {
    let mut listening = Listening::new(1 << 20);
    let [d0, d1] = listening.net.devices;
    let route = |table, text| News::Route { table, prefix: prefix(text) };
    let heard = [
        ("link set d1 mtu 1400", News::Link(d1)),
        ("address add 10.0.0.2/32 dev d0", News::Address(d0)),
        ("address add fd00:0::2/128 dev d0 nodad", News::Address(d0)),
        ("nexthop add id 5 via 10.0.0.9 dev d0", News::Nexthop(5)),
        ("nexthop del id 5", News::Nexthop(5)),
        ("rule add from 10.9.0.0/16 table 300 priority 50 protocol 212", News::Rule),
        ("-6 rule add from fd09::/16 table 300 priority 50 protocol 212", News::Rule),
        ("route add 203.0.113.0/24 via 10.0.0.9 proto 212", route(254, "203.0.113.0/24")),
        ("route add 203.0.113.0/24 via 10.0.0.9 table 77", route(77, "203.0.113.0/24")),
        ("-6 route add 2001:db8:7::/48 via fd00:0::9 proto 212 table 1000", route(1_000, "2001:db8:7::/48")),
        ("route del 203.0.113.0/24 table 77", route(77, "203.0.113.0/24")),
        ("link del d1", News::Link(d1)),
    ];
    for (arguments, news) in heard {
        listening.net.ip(arguments);
        // The kernel announces an IPv6 address when a worker of its own has looked at it.
        let mut found = BTreeSet::new();
        eventually(arguments, || {
            if let Heard::Changed(more) = listening.heard() {
                found.extend(more);
            }
            found.contains(&news)
        });
    }
    for arguments in [
        "route add 203.0.113.0/24 via 10.0.0.9 metric 7 proto static",
        "rule add from 10.8.0.0/16 table 300 priority 50",
        "neighbour add 10.0.0.9 lladdr 02:00:00:00:00:09 dev d0",
    ] {
        listening.net.ip(arguments);
        assert_eq!(listening.routes_heard(), BTreeSet::new(), "{arguments}");
    }
}

fn ourselves() {
    // Room for a few dozen announcements only.
    let mut listening = Listening::new(16 << 10);
    let net = &mut listening.net;
    let routes = many(10_000, &hops([net.via(Family::V4, 0, 9, 1)]));
    let (one, two) = (single(1, Family::V4, net.via(Family::V4, 0, 9, 1)), single(2, Family::V4, net.on(1)));
    net.make(&routes.iter().cloned().map(Change::AddRoute).collect::<Vec<_>>());
    net.make(&[one, two, group(3, &[(1, 1)])].map(Change::AddNexthop));
    let over: Vec<_> = many(10_000, &Way::Object(3))
        .into_iter()
        .map(|route| adit::steer::KernelRoute { metric: 9, ..route })
        .collect();
    net.make(&over.iter().cloned().map(Change::AddRoute).collect::<Vec<_>>());
    // The kernel announces each route over it again.
    net.make(&[Change::ReplaceNexthop(group(3, &[(2, 1)]))]);
    net.make(&routes.into_iter().map(Change::DeleteRoute).collect::<Vec<_>>());
    net.make(&[Change::AddRule(rule()), Change::DeleteRule(rule())]);
    assert_eq!(listening.routes_heard(), BTreeSet::new());
    // And what somebody else does to them is heard nevertheless.
    listening.net.ip("nexthop replace id 3 group 1 proto 212");
    assert_eq!(listening.heard(), Heard::Overrun, "each of the 10 000 routes over it was announced");
}

fn rule() -> adit::steer::Rule {
    adit::steer::Rule {
        family: Family::V4,
        priority: 50,
        table: 77,
        source: None,
        destination: None,
        fwmark: None,
        protocol: None,
        ports: None,
    }
}

fn overrun() {
    let mut listening = Listening::new(16 << 10);
    let batch: String = many(20_000, &Way::Unreachable)
        .iter()
        .map(|route| format!("route add {} via 10.0.0.9 metric 10 proto 212\n", route.prefix))
        .collect();
    netns::within(Some(&listening.net.namespace), || {
        let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        ip.stdin.take().unwrap().write_all(batch.as_bytes())?;
        assert!(ip.wait()?.success());
        Ok(())
    })
    .unwrap();
    assert_eq!(listening.heard(), Heard::Overrun);
    assert_eq!(listening.routes_heard(), BTreeSet::new(), "it is told once");
    let found = listening.net.picture().routes;
    assert_eq!(found, many(20_000, &hops([listening.net.via(Family::V4, 0, 9, 1)])));
    // And it hears again.
    listening.net.ip("route del 20.0.0.1/32");
    let news = News::Route { table: 254, prefix: prefix("20.0.0.1/32") };
    assert_eq!(listening.routes_heard(), BTreeSet::from([news]));
}

fn woken() {
    let mut listening = Listening::new(1 << 20);
    eventually("silence", || {
        let _ = listening.heard();
        !listening.woken(ms(500))
    });
    let own = route("203.0.113.0/24", 10, hops([listening.net.on(0)]));
    listening.net.make(&[Change::AddRoute(own)]);
    assert!(!listening.woken(ms(200)), "by our own");
    listening.net.ip("route add 203.0.113.0/24 via 10.0.0.9 table 77");
    assert!(listening.woken(PATIENCE));
    assert!(matches!(listening.heard(), Heard::Changed(_)));
    assert!(!listening.woken(ms(200)), "all has been heard");
}

fn quiet_routes() {
    let mut listening = Listening::new(1 << 20);
    let net = &mut listening.net;
    let over: Vec<_> = many(50, &Way::Object(3)).into_iter().map(Change::AddRoute).collect();
    net.make(&[
        Change::AddNexthop(single(1, Family::V4, net.via(Family::V4, 0, 9, 1))),
        Change::AddNexthop(single(2, Family::V4, net.via(Family::V4, 1, 9, 1))),
        Change::AddNexthop(group(3, &[(1, 1)])),
    ]);
    net.make(&over);
    let told = |listening: &mut Listening, member: u32| {
        listening.net.ip(&format!("nexthop replace id 3 group {member} proto 212"));
        listening.routes_heard()
    };
    assert!(told(&mut listening, 2).iter().any(|news| matches!(news, News::Route { .. })));
    let set = |listening: &Listening, on| {
        netns::within(Some(&listening.net.namespace), || {
            set_notify_routes(on)?;
            notify_routes()
        })
    };
    assert!(!set(&listening, false).unwrap());
    assert_eq!(told(&mut listening, 1), BTreeSet::from([News::Nexthop(3)]));
    assert!(set(&listening, true).unwrap());
    assert!(told(&mut listening, 2).iter().any(|news| matches!(news, News::Route { .. })));
}

fn remedy() {
    let net = Net::new();
    let refused = netns::within(Some(&net.namespace), || {
        // As systemd does it for ProtectKernelTunables=yes, for this thread only.
        unshare(CloneFlags::CLONE_NEWNS)?;
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        let locked = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RELATIME;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        mount(Some("/proc/sys"), "/proc/sys", None::<&str>, bind, None::<&str>)?;
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | locked;
        mount(None::<&str>, "/proc/sys", None::<&str>, read_only, None::<&str>)?;
        assert!(notify_routes()?, "looking is still allowed");
        Ok(set_notify_routes(false).unwrap_err())
    })
    .unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let said = refused.to_string();
    assert!(said.contains("\"net.ipv4.nexthop_compat_mode = 0\" into /etc/sysctl.d/adit.conf"), "{said}");
}
