//! Packets by the hundred thousand, at a prober with very many tunnels.

use crate::crowd::{Crowd, MANY, epoch};
use crate::kit::{FAR, NEAR};
use crate::stranger::{Stranger, icmp, ipv4};
use crate::table::{Row, row};

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row(
            "fault_07_a_flood_that_matches_nothing_does_not_reach_the_prober",
            "400 000 packets that are nobody's: the kernel's filter keeps them out; zero transitions of 2 000 tunnels",
            || flood(400_000, |_| nobodys(), false),
        )
        .alone(),
        row(
            "fault_07_a_flood_from_off_the_path_does_not_reach_the_prober",
            "400 000 packets with all of an answer that can be known without having seen a probe: likewise",
            || flood(400_000, |_| forged([0x55; 8]), false),
        )
        .alone(),
        row(
            "fault_07_a_flood_that_overflows_the_queue_makes_no_tunnel_sick",
            "a million forged answers as fast as they can be sent, by somebody who sees the probes: the queue overflows, \
             what is lost in it is no failure; zero transitions of 2 000 tunnels",
            || flood(1_000_000, |crowd| forged(epoch(&crowd.site.pair)), true),
        )
        .alone(),
    ]
}

/// More than one, so that they are faster than the one who reads.
const FLOODERS: usize = 4;

/// The answer to somebody's ping.
fn nobodys() -> Vec<u8> {
    ipv4([FAR[0], NEAR[0]], 1, &icmp([0, 0], [0x12, 0x34, 0, 1], &[0x55; 72]))
}

/// What the filter must let pass: an answer that bears our magic, and the epoch of this run.
fn forged(epoch: [u8; 8]) -> Vec<u8> {
    // Long ones fill it sooner.
    let mut payload = [0x55; 1_400];
    payload[..8].copy_from_slice(b"adit\x01\0\0\0");
    payload[16..24].copy_from_slice(&epoch);
    ipv4([FAR[0], NEAR[0]], 1, &icmp([0, 0], [0x12, 0x34, 0, 1], &payload))
}

fn flood(packets: usize, packet: impl FnOnce(&Crowd) -> Vec<u8>, passes: bool) {
    let crowd = Crowd::healthy(MANY, "");
    let packet = packet(&crowd);
    let stranger = Stranger::beside(&crowd.site.pair);
    let before = crowd.rejected();
    std::thread::scope(|scope| {
        (0..FLOODERS).for_each(|_| drop(scope.spawn(|| stranger.flood(&packet, packets / FLOODERS))));
    });
    crowd.await_rounds(2);
    let (health, refused) = (crowd.health(), crowd.rejected() - before);
    println!("of {packets} packets {refused} were read; {}", health["local_faults"]);
    let overflows = crowd.faults("receive-overflow") + crowd.faults("receive");
    if passes {
        assert!(refused > 10_000 && overflows > 0, "the queue was not full, so this shows nothing: {health:#}");
    } else {
        assert_eq!((refused, overflows), (0, 0), "{health:#}");
    }
    crowd.assert_calm(MANY);
    crowd.end();
}
