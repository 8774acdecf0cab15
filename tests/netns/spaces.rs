//! The built program where namespaces and devices are missing, come and go.
//!
//! A namespace has a name here as `ip netns add` gives it one: by a file that it is mounted on. The
//! trials are in a mount namespace of their own, so nobody else sees that, and no root is needed.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use adit::io::{links, netns};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{Pair, eventually, ms};
use crate::site::{Running, Site, TUNNELS, adit};
use crate::{Case, case, sealed};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("spaces::a_namespace_may_come_later", a_namespace_may_come_later),
        case("spaces::a_namespace_that_is_deleted_is_let_go_of", a_namespace_that_is_deleted_is_let_go_of),
        case("spaces::another_one_under_the_same_name_is_taken", another_one_under_the_same_name_is_taken),
        case("spaces::fifty_namespaces_later_nothing_is_left_open", fifty_namespaces_later_nothing_is_left_open),
        case("spaces::esp_goes_on_in_another_namespace", esp_goes_on_in_another_namespace),
        case("spaces::an_underlay_device_may_come_and_go", an_underlay_device_may_come_and_go),
        case("spaces::what_may_not_be_entered_starts_nothing", what_may_not_be_entered_starts_nothing),
    ]
}

/// A name that namespaces are mounted on.
pub(crate) struct Name {
    pub(crate) path: PathBuf,
}

impl Name {
    pub(crate) fn new(site: &Site) -> Self {
        Self { path: site.path("blue") }
    }

    /// Puts a namespace under it, on top of another one if there is one.
    pub(crate) fn set(&self, namespace: &File) {
        let from = format!("/proc/self/fd/{}", namespace.as_raw_fd());
        self.make();
        self.mount(&from);
    }

    fn mount(&self, from: &str) {
        mount(Some(from), &self.path, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    }

    /// The file, as it is before anything is mounted on it.
    fn make(&self) {
        File::options().create(true).append(true).open(&self.path).unwrap();
    }

    /// What was put there last goes.
    fn unmount(&self) {
        umount2(&self.path, MntFlags::MNT_DETACH).unwrap();
    }

    pub(crate) fn delete(&self) {
        self.unmount();
        fs::remove_file(&self.path).unwrap();
    }

    fn inode(&self) -> u64 {
        fs::metadata(&self.path).unwrap().ino()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        while umount2(&self.path, MntFlags::MNT_DETACH).is_ok() {}
    }
}

/// The namespace that a tunnel begins in, which the name alone holds, and its far end at work.
pub(crate) struct Blue {
    far: File,
    pub(crate) reflector: Option<Running>,
}

impl Blue {
    pub(crate) fn under(name: &Name, site: &Site) -> Self {
        let Pair { near, far } = Pair::new();
        name.set(&near);
        Self::of(far, site)
    }

    fn of(far: File, site: &Site) -> Self {
        let reflector = Running::start(&far, &mut site.command("reflect", "ams-1.far"));
        eventually("a reflector at work", || site.read("ams-1.far.log").contains("reflecting"));
        Self { far, reflector: Some(reflector) }
    }

    /// A cable has two ends: with the last holder of a namespace its end is gone, and so is the other.
    pub(crate) fn await_end_of_near(&self) {
        let has_cable = || netns::within(Some(&self.far), || Ok(if_nametoindex("far0").is_ok())).unwrap();
        eventually("the end of a namespace", || !has_cable());
    }
}

/// The first tunnel is in the namespace under the name, the second one where the daemon runs.
fn site_with(name: impl FnOnce(&Site) -> Name) -> (Site, Name) {
    let site = Site::new();
    let name = name(&site);
    let netns = format!("name = \"ams-1\"\nnetns = \"{}\"", name.path.display());
    // The other one is to be called sick by no busy machine.
    let patient = "interface_address = \"10.100.0.10/31\"\n[tunnel.health_check]\ntimeout = \"5s\"\n\
                   down_window = \"12s\"\n[tunnel.health_check.rules]\ndegraded_window = \"5m\"";
    let text = site.configuration().replace("name = \"ams-1\"", &netns);
    assert!(text.contains("interface_address = \"10.100.0.10/31\""));
    site.write("adit.conf", &text.replace("interface_address = \"10.100.0.10/31\"", patient));
    (site, name)
}

fn events(site: &Site, kind: &str) -> Vec<Value> {
    let lines = site.say(&["events", "--json"]);
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["kind"] == kind).collect()
}

/// What was told of namespaces and devices: why they are missing, or that they are there.
fn needs(site: &Site) -> Vec<String> {
    let what = |event: Value| event["reason"].as_str().map_or("there".to_owned(), str::to_owned);
    events(site, "need").into_iter().map(what).collect()
}

fn transitions(site: &Site, tunnel: &str) -> Vec<(String, u64)> {
    let own = events(site, "transition").into_iter().filter(|event| event["tunnel"] == tunnel);
    own.map(|event| (event["to"].as_str().unwrap().to_owned(), event["rule"].as_u64().unwrap())).collect()
}

/// A counter of a tunnel's.
fn counter(site: &Site, tunnel: &str, name: &str) -> u64 {
    let view: Value = serde_json::from_str(&site.http("GET", &format!("/v1/tunnels/{tunnel}")).2).unwrap();
    view["counters"][name].as_u64().unwrap()
}

fn last_failure(site: &Site, name: &str) -> String {
    let view: Value = serde_json::from_slice(&site.adit(&["status", name, "--json"]).stdout).unwrap();
    view["last_failure"]["reason"].as_str().unwrap_or("none").to_owned()
}

fn await_failure(site: &Site, name: &str, reason: &str) {
    let mut last = String::new();
    eventually(&format!("{name} not sent: {reason}"), || {
        last = last_failure(site, name);
        last == format!("not sent: {reason}")
    });
    site.await_state(name, "down");
}

/// The tunnel beside it has noticed nothing.
fn assert_calm(site: &Site, name: &str) {
    let entered: Vec<_> = transitions(site, name).into_iter().map(|(to, _)| to).collect();
    assert_eq!(entered, ["healthy"], "{}", site.read("adit.conf.log"));
}

fn a_namespace_may_come_later() {
    let (site, name) = site_with(Name::new);
    let path = name.path.display().to_string();
    let _fra = site.far("fra-1");
    let daemon = site.daemon();
    site.await_state("fra-1", "healthy");
    let missing = format!("network namespace {path} is missing");
    await_failure(&site, "ams-1", &missing);
    assert_eq!(transitions(&site, "ams-1"), [("down".to_owned(), 1)]);
    let log = site.read("adit.conf.log");
    assert!(log.contains(&format!("WARN {missing}: its tunnels fail until it is there")), "{log}");
    assert!(site.say(&["events"]).contains(&missing));
    assert_eq!(needs(&site), [&*missing]);

    // As between the two steps of `ip netns add`; and a namespace, but none of a network.
    name.make();
    let before = counter(&site, "ams-1", "lost");
    // At ten a second, it is looked at more than once meanwhile.
    eventually("more failures", || counter(&site, "ams-1", "lost") >= before + 20);
    assert_eq!(needs(&site), [&*missing]);
    name.mount("/proc/self/ns/uts");
    let unusable = format!("network namespace {path} cannot be used: it is a namespace, but not of the network");
    await_failure(&site, "ams-1", &unusable);
    name.unmount();
    await_failure(&site, "ams-1", &missing);

    let _blue = Blue::under(&name, &site);
    site.await_state("ams-1", "healthy");
    assert_eq!(needs(&site), [&missing, &unusable, &missing, "there"]);
    let log = site.read("adit.conf.log");
    assert!(log.contains(&format!("INFO network namespace {path} is there")), "{log}");
    assert_calm(&site, "fra-1");
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

fn a_namespace_that_is_deleted_is_let_go_of() {
    let (site, name) = site_with(Name::new);
    let blue = Blue::under(&name, &site);
    let _fra = site.far("fra-1");
    let _daemon = site.daemon();
    TUNNELS.iter().for_each(|name| site.await_state(name, "healthy"));
    name.delete();
    blue.await_end_of_near();
    let missing = format!("network namespace {} is missing", name.path.display());
    await_failure(&site, "ams-1", &missing);

    let blue = Blue::under(&name, &site);
    site.await_state("ams-1", "healthy");
    assert_eq!(needs(&site), [&missing, "there"]);
    // While it is down, and nothing is sent.
    drop(blue.reflector);
    site.await_state("ams-1", "down");
    assert_eq!(last_failure(&site, "ams-1"), "timeout");
    assert_calm(&site, "fra-1");
}

fn another_one_under_the_same_name_is_taken() {
    let (site, name) = site_with(Name::new);
    let blue = Blue::under(&name, &site);
    let _fra = site.far("fra-1");
    let _daemon = site.daemon();
    TUNNELS.iter().for_each(|name| site.await_state(name, "healthy"));
    let before = name.inode();
    // In a moment, both at once there: so it has another inode for sure.
    let Pair { near, far } = Pair::new();
    name.unmount();
    name.set(&near);
    drop(near);
    assert_ne!(name.inode(), before);
    blue.await_end_of_near();
    // Whatever is answered now is answered there.
    let _blue = Blue::of(far, &site);
    let others =
        format!("network namespace {} was deleted, and there is another one of that name", name.path.display());
    assert_eq!(needs(&site), [&others, "there"]);
    let received = || counter(&site, "ams-1", "received");
    let so_far = received();
    eventually("answers from there", || received() > so_far + 10);
    site.await_state("ams-1", "healthy");

    // The same one once more, by another mount on top: nobody could look between them.
    let same = File::open(&name.path).unwrap();
    name.mount(&format!("/proc/self/fd/{}", same.as_raw_fd()));
    drop(same);
    let so_far = received();
    eventually("answers from there", || received() > so_far + 20);
    assert_eq!(needs(&site), [&others, "there"], "it is the same");
    assert_calm(&site, "fra-1");
}

fn fifty_namespaces_later_nothing_is_left_open() {
    let (site, name) = site_with(Name::new);
    let _blue = Blue::under(&name, &site);
    let daemon = site.daemon();
    site.await_state("ams-1", "healthy");
    // Clients that have just gone may still be among them.
    let least = || (0..20).map(|_| daemon.descriptors()).min().unwrap();
    let before = least();
    let mut seen = 0;
    let told = || needs(&site).iter().filter(|what| what.as_str() == "there").count();
    for round in 0..50 {
        name.unmount();
        if round % 3 == 0 {
            std::thread::sleep(ms(20));
        }
        name.set(&netns::make().unwrap());
        // Most are gone before anybody has looked; some are not.
        if round % 10 == 0 {
            seen += 1;
            eventually("a namespace that is noticed", || told() >= seen);
        }
    }
    name.unmount();
    let _blue = Blue::under(&name, &site);
    site.await_state("ams-1", "healthy");
    assert!(told() > 5, "{:?}", needs(&site));
    eventually("as few descriptors as before", || daemon.descriptors() <= before);
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap().count();
    assert!(tasks <= 8, "{tasks} threads");
}

/// Another namespace has other sockets, whose filters let nothing of ESP pass at first.
fn esp_goes_on_in_another_namespace() {
    let site = sealed::site("static");
    let name = Name::new(&site);
    let netns = format!("name = \"ams-1\"\nnetns = \"{}\"", name.path.display());
    site.write("adit.conf", &site.read("adit.conf").replacen("name = \"ams-1\"", &netns, 1));
    let _daemon = site.daemon();
    site.await_state("fra-1", "down");
    // It is known what is in the way of the keys, too.
    site.say(&["sa", "begin", "ams-1"]);
    await_failure(&site, "ams-1", &format!("network namespace {} is missing", name.path.display()));
    for round in 0..2 {
        let Pair { near, far } = Pair::new();
        name.set(&near);
        drop(near);
        let mut command = site.command("reflect", "ams-1.far");
        if round == 0 {
            command.args(["--begin", "ams-1"]);
        }
        let reflector = Running::start(&far, &mut command);
        site.await_state("ams-1", "healthy");
        reflector.send(Signal::SIGTERM);
        assert!(reflector.end().success());
        name.unmount();
        let blue = Blue { far, reflector: None };
        blue.await_end_of_near();
        site.await_state("ams-1", "down");
    }
}

/// Both families, whose kernels say different things of a device that is gone.
fn an_underlay_device_may_come_and_go() {
    let site = Site::new();
    let mut text = site.configuration();
    for (name, old, [local, remote]) in [
        ("ams-1", "192.0.2.11", ["198.51.100.1", "198.51.100.11"]),
        ("fra-1", "192.0.2.12", ["2001:db8:9::1", "2001:db8:9::11"]),
    ] {
        let ends = |local, remote| format!("local_endpoint = \"{local}\"\nremote_endpoint = \"{remote}\"");
        let by_device = format!("underlay_device = \"up0\"\n{}", ends(local, remote));
        text = text.replace(&ends("192.0.2.1", old), &by_device);
        let file = format!("{name}.far");
        site.write(&file, &site.read(&file).replace(&ends(old, "192.0.2.1"), &ends(remote, local)));
    }
    assert_eq!(text.matches("up0").count(), 2);
    site.write("adit.conf", &text);
    let near = &site.pair.near;
    let daemon = site.daemon();
    let missing = "underlay_device up0 is missing";
    TUNNELS.iter().for_each(|name| await_failure(&site, name, missing));
    let mut indices = Vec::new();
    for round in 1..=3 {
        // It ends with the namespace that its other end is in.
        let far = netns::make().unwrap();
        netns::within(Some(near), || links::connect("up0", "dn0", &far)).unwrap();
        let with = |addresses: [&str; 2]| addresses.map(|text| text.parse().unwrap());
        links::configure(Some(&far), "lo", &[]).unwrap();
        links::configure(Some(near), "up0", &with(["198.51.100.1/24", "2001:db8:9::1/64"])).unwrap();
        links::configure(Some(&far), "dn0", &with(["198.51.100.11/24", "2001:db8:9::11/64"])).unwrap();
        indices.push(netns::within(Some(near), || Ok(if_nametoindex("up0")?)).unwrap());
        let reflectors = TUNNELS.map(|name| Running::start(&far, &mut site.command("reflect", &format!("{name}.far"))));
        TUNNELS.iter().for_each(|name| site.await_state(name, "healthy"));
        assert_eq!(needs(&site).iter().filter(|what| *what == "there").count(), 2 * round);
        drop((reflectors, far));
        eventually("the device is gone", || !netns::within(Some(near), || Ok(if_nametoindex("up0").is_ok())).unwrap());
        TUNNELS.iter().for_each(|name| await_failure(&site, name, missing));
    }
    assert!(indices.is_sorted_by(|one, other| one < other), "{indices:?}");
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

/// For want of a capability it ends at once, whether the namespace is there or not.
fn what_may_not_be_entered_starts_nothing() {
    let (site, name) = site_with(Name::new);
    let refused = |lacking: &str| {
        let mut command = Command::new("setpriv");
        let lacking = format!("-{lacking}");
        command.args(["--bounding-set", &lacking, "--inh-caps", &lacking]).arg(adit()).arg("run").arg("--config");
        command.arg(site.path("adit.conf")).stderr(File::create(site.path("adit.conf.log")).unwrap());
        let daemon = Running::start(&site.pair.near, &mut command);
        (daemon.end().code(), site.read("adit.conf.log"))
    };
    for is_there in [false, true] {
        if is_there {
            name.set(&netns::make().unwrap());
        }
        for (lacking, words) in [("sys_admin", "CAP_SYS_ADMIN"), ("net_raw", "CAP_NET_RAW")] {
            let (code, said) = refused(lacking);
            assert_eq!(code, Some(77), "{said}");
            assert!(said.contains(&format!("network namespace {}", name.path.display())), "{said}");
            assert!(said.contains(words), "{said}");
        }
    }
}
