//! Devices, addresses and carriers that are not there yet, go, and come back.

use std::fs::File;
use std::io::ErrorKind;
use std::net::UdpSocket;

use adit::io::netns;

use super::in_both_modes;
use super::moves::{DETECTION, SLACK};
use super::net::batch;
use super::stage::{PREFIXES, Stage};
use super::stream::Stream;
use crate::kills::now;
use crate::kit::{eventually, ms};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let cases = [
        in_both_modes("ways::a_link_that_flaps_20_times_has_its_routes_back", flaps),
        in_both_modes("ways::a_device_may_come_late_and_go_and_come_as_another", comes_and_goes),
        in_both_modes("ways::without_a_carrier_traffic_leaves_and_with_it_it_comes_back", carrier),
        in_both_modes("ways::behind_the_backstop_nothing_follows_the_default_route", backstop),
    ];
    let address = case("steering::ways::an_address_may_go_and_come_back", address);
    cases.into_iter().flatten().chain([address]).collect()
}

fn flaps(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    let _daemon = stage.healthy();
    let wanted = stage.ours();
    for flap in
        ["link set t0 down\nlink set t0 up\n", "link set t0 down\nlink set t1 down\nlink set t1 up\nlink set t0 up\n"]
    {
        batch(stage.near(), &flap.repeat(20));
        for prefix in PREFIXES {
            [0, 1].iter().for_each(|path| stage.await_standing(prefix, *path, "installed", ""));
        }
        // Probes that could not be sent may have made them look sick.
        stage.await_health();
        stage.await_ours(&wanted, flap);
    }
}

fn comes_and_goes(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    let index = || stage.ip("-o link show t1").split(':').next().unwrap().to_owned();
    let first = index();
    stage.ip("link del t1");
    let _daemon = stage.site.daemon();
    stage.site.await_state("one", "healthy");
    let stands = |word: &str, reason: &str| {
        for prefix in PREFIXES {
            stage.await_standing(prefix, 1, word, reason);
            stage.await_standing(prefix, 0, "installed", "");
        }
    };
    stands("waiting", "there is no device t1");
    stage.lay_path(1);
    stage.await_health();
    let (wanted, second) = (stage.ours(), index());
    stage.ip("link set t1 down");
    stands("waiting", "device t1 is down");
    stage.ip("link set t1 up");
    stands("installed", "");
    stage.ip("link del t1");
    stands("waiting", "there is no device t1");
    // Other numbers are taken meanwhile, so that it surely gets another one.
    stage.ip("link add x0 type veth peer name x1");
    stage.lay_path(1);
    stage.await_health();
    assert_eq!(stage.ours(), wanted, "as it was");
    let indices = [first, second, index()];
    assert!(indices[0] != indices[1] && indices[1] != indices[2], "{indices:?}");
    // And traffic goes there.
    let stream = Stream::start(&stage);
    stage.site.say(&["drain", "one"]);
    stream.await_path(1);
    stream.end().assert_whole(None, None);
}

fn carrier(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    let _daemon = stage.healthy();
    let wanted = stage.ours();
    let stream = Stream::start(&stage);
    stream.await_path(0);
    let unplugged = now();
    stage.unplug(0);
    let left = stream.await_path(1);
    stage.site.await_state("one", "down");
    // The kernel keeps a route without a carrier, but no object; and it does not take one.
    for prefix in PREFIXES {
        match mode {
            "metric" => stage.await_standing(prefix, 0, "installed", ""),
            _ => stage.await_standing(prefix, 0, "refused", "Carrier for nexthop device is down"),
        }
    }
    let still = stream.mark();
    stage.plug(0);
    stage.await_health();
    let back = stream.await_path(0);
    stage.await_ours(&wanted, "a carrier that went and came");
    let report = stream.end();
    report.assert_whole(Some(left), Some(still));
    report.assert_whole(Some(back), None);
    let last = report.lost().into_iter().max().map(|last| last.saturating_duration_since(unplugged));
    println!("{mode}, carrier: {report}; the last one was lost {last:?} after");
    // That an object goes is seen at once; that nothing comes back takes its time-outs.
    let limit = if mode == "nexthop" { ms(1_000) } else { DETECTION + SLACK };
    assert!(last.is_none_or(|last| last < limit), "{last:?}, {report}");
}

/// Whether this host would send something there, or what the kernel says instead.
fn reach(namespace: &File, destination: &str) -> Result<(), ErrorKind> {
    let any = if destination.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = netns::within(Some(namespace), || UdpSocket::bind(any)).map_err(|error| error.kind())?;
    socket.connect((destination, 9)).map_err(|error| error.kind())
}

fn backstop(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\nbackstop = true\n"));
    batch(stage.near(), "route add default via 10.1.0.2\nroute add default via fd00:1::2\n");
    let _daemon = stage.healthy();
    let wanted = stage.ours();
    for device in ["t0", "t1"] {
        stage.ip(&format!("link set {device} down"));
    }
    for (inside, outside) in [("10.20.0.1", "10.21.0.1"), ("2001:db8:20::1", "2001:db8:21::1")] {
        eventually("no way out", || reach(stage.near(), inside) == Err(ErrorKind::HostUnreachable));
        assert_eq!(reach(stage.near(), outside), Ok(()), "the default route is there");
    }
    for prefix in PREFIXES {
        [0, 1].iter().for_each(|path| stage.await_standing(prefix, *path, "waiting", "is down"));
    }
    let left = stage.ours();
    let routes: Vec<_> =
        left.iter().filter(|line| line.contains("10.20.0.0/16") || line.contains("2001:db8:20")).collect();
    assert!(routes.len() == 2 && routes.iter().all(|line| line.contains("metric 4294967295")), "{left:#?}");
    for device in ["t0", "t1"] {
        stage.ip(&format!("link set {device} up"));
    }
    stage.await_health();
    stage.await_ours(&wanted, "down and up");
    assert_eq!(reach(stage.near(), "10.20.0.1"), Ok(()));
}

/// Without its address a device has no neighbours; so the kernel takes no route by one.
fn address() {
    let stage = Stage::new("mode = \"metric\"\n");
    let _daemon = stage.healthy();
    let wanted = stage.ours();
    let address = |verb: &str| {
        batch(
            stage.near(),
            &format!("address {verb} 10.100.1.0/31 dev t1\naddress {verb} fd00:100:1::a/64 dev t1 nodad\n"),
        );
    };
    address("del");
    stage.ip("-4 route flush table all proto 212");
    stage.ip("-6 route flush table all proto 212");
    for prefix in PREFIXES {
        stage.await_standing(prefix, 0, "installed", "");
    }
    stage.await_standing(PREFIXES[0], 1, "refused", "Nexthop has invalid gateway");
    stage.await_standing(PREFIXES[1], 1, "refused", "No route to host");
    address("add");
    PREFIXES.iter().for_each(|prefix| stage.await_standing(prefix, 1, "installed", ""));
    stage.await_health();
    stage.await_ours(&wanted, "an address that went and came");
}
