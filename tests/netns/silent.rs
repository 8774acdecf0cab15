//! The built program where it must not seal, or cannot: it is silent, and says why.

use std::fs::{self, File};
use std::io;
use std::process::Command;

use adit::io::netns;
use nix::sys::signal::Signal;

use crate::kit::eventually;
use crate::sealed::{reason, reflector, said, site};
use crate::site::{Running, Site, adit};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(
            "silent::a_reflector_does_not_answer_on_what_its_kernel_has",
            a_reflector_does_not_answer_on_what_its_kernel_has,
        )
        .with_xfrm(),
        case("silent::a_prober_does_not_send_on_what_its_kernel_has", a_prober_does_not_send_on_what_its_kernel_has)
            .with_xfrm(),
        case(
            "silent::a_reflector_that_may_not_look_says_so_once_and_answers",
            a_reflector_that_may_not_look_says_so_once_and_answers,
        )
        .with_xfrm(),
        case(
            "silent::a_reflector_whose_record_cannot_be_written_says_so_and_goes_on",
            a_reflector_whose_record_cannot_be_written_says_so_and_goes_on,
        ),
    ]
}

/// Sets an SPI aside, which makes an association that has no keys yet: that needs no cipher of the
/// kernel's. It lasts for 30 s. It is no news, but that another one is deleted is.
fn set_aside(namespace: &File, [from, to]: [&str; 2], spi: u32) -> io::Result<()> {
    for spi in [spi, 0xFFFF].map(|spi| format!("{spi:#x}")) {
        xfrm(namespace, &["state", "allocspi", "src", from, "dst", to, "proto", "esp", "min", &spi, "max", &spi])?;
    }
    delete(namespace, [from, to], 0xFFFF)
}

fn delete(namespace: &File, [from, to]: [&str; 2], spi: u32) -> io::Result<()> {
    let spi = format!("{spi:#x}");
    xfrm(namespace, &["state", "delete", "src", from, "dst", to, "proto", "esp", "spi", &spi])
}

fn xfrm(namespace: &File, arguments: &[&str]) -> io::Result<()> {
    let output = netns::within(Some(namespace), || Command::new("ip").arg("xfrm").args(arguments).output())?;
    if output.status.success() { Ok(()) } else { Err(io::Error::other(said(&output))) }
}

/// Whether the kernel has security associations, and ip makes them.
pub(crate) fn xfrm_works() -> Result<(), String> {
    let made = netns::make().and_then(|namespace| set_aside(&namespace, ["192.0.2.1", "192.0.2.2"], 0x1001));
    made.map_err(|error| format!("ip xfrm cannot be used (Debian package iproute2): {error}"))
}

const NEAR: &str = "192.0.2.1";
const FAR: &str = "192.0.2.11";

/// How often the far end has said this.
fn times(site: &Site, words: &str) -> usize {
    site.read("ams-1.far.log").matches(words).count()
}

fn a_reflector_does_not_answer_on_what_its_kernel_has() {
    let site = site("static");
    let far = &site.pair.far;
    set_aside(far, [FAR, NEAR], 0x2001).unwrap();
    let _reflector = reflector(&site, true);
    let conflict = "cannot be answered: spi-conflict: the kernel has an association with SPI";
    eventually("its word", || times(&site, conflict) == 1);
    let _daemon = site.daemon();
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "down");

    xfrm(far, &["state", "flush"]).unwrap();
    site.await_answers();
    // The inbound one, while it runs; and then another one, which concerns nobody.
    set_aside(far, [NEAR, FAR], 0x1001).unwrap();
    eventually("its word again", || times(&site, conflict) == 2);
    set_aside(far, [NEAR, FAR], 0x1002).unwrap();
    delete(far, [NEAR, FAR], 0x1001).unwrap();
    site.await_answers();
    let log = site.read("ams-1.far.log");
    assert_eq!((times(&site, conflict), times(&site, "can be answered again")), (2, 2), "{log}");
}

fn a_prober_does_not_send_on_what_its_kernel_has() {
    let site = site("static");
    let _reflector = reflector(&site, true);
    let _daemon = site.daemon();
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    set_aside(&site.pair.near, [NEAR, FAR], 0x1001).unwrap();
    eventually("its word", || reason(&site).starts_with("spi-conflict: "));
    let shown = site.say(&["sa", "show"]);
    assert!(shown.lines().last().unwrap().starts_with("ams-1: spi-conflict: "), "{shown}");
    assert_eq!(site.state("ams-1"), "unknown");
    xfrm(&site.pair.near, &["state", "flush"]).unwrap();
    site.await_state("ams-1", "healthy");
}

fn a_reflector_that_may_not_look_says_so_once_and_answers() {
    let site = site("static");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]).arg(adit());
    command.args(["reflect", "--begin", "ams-1", "--config"]).arg(site.path("ams-1.far"));
    let _reflector = Running::start(&site.pair.far, command.stderr(File::create(site.path("ams-1.far.log")).unwrap()));
    let _daemon = site.daemon();
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    assert_eq!(times(&site, "without CAP_NET_ADMIN"), 1, "{}", site.read("ams-1.far.log"));
}

fn a_reflector_whose_record_cannot_be_written_says_so_and_goes_on() {
    let site = site("static");
    let far = reflector(&site, true);
    let _daemon = site.daemon();
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    far.send(Signal::SIGTERM);
    far.end();
    // Where the next record would be written, there is something else.
    let in_the_way = site.path("far-state").join("sequence-numbers.new");
    fs::create_dir(&in_the_way).unwrap();
    let _far = reflector(&site, false);
    let silent = "cannot be answered: sequence-state-unwritten: ";
    eventually("its word", || times(&site, silent) == 1);
    site.await_state("ams-1", "down");
    fs::remove_dir(&in_the_way).unwrap();
    site.await_answers();
    let log = site.read("ams-1.far.log");
    assert_eq!((times(&site, silent), times(&site, "can be answered again")), (1, 1), "{log}");
    assert!(log.contains("see to it that state_dir can be written"), "{log}");
}
