//! Clocks that jump, sends that are refused, and thousands of probes: in virtual time, because nobody may set
//! the clock of the machine that runs this.

use std::time::Duration;

use adit::engine::event::Kind;
use adit::engine::{State, Time, WallTime};
use adit::io::clock::stamped;

use crate::kit::ms;
use crate::sim::far::Sending;
use crate::sim::{Sim, at_ms, tunnel};
use crate::table::{Row, lent, row};

const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn rows(netns: &mut dyn FnMut(&str) -> crate::Case) -> Vec<Row> {
    vec![
        row(
            "fault_32_an_arrival_time_does_not_jump_with_the_wall_clock",
            "a stamp of the kernel's says how long a packet has waited, and never longer than since the queue was last empty",
            stamps,
        ),
        row(
            "fault_32_the_wall_clock_moves_no_state_and_no_round_trip_time",
            "an hour ahead and back, every second: the same transitions, counters and round-trip times as without",
            wall_clock,
        ),
        row(
            "fault_33_a_host_that_slept_calls_none_of_2000_tunnels_sick",
            "what was under way is inconclusive, no transition until there is new evidence, and probes do not fall into step",
            suspended,
        ),
        row(
            "fault_41_short_of_buffers_a_probe_leaves_a_little_later_and_nothing_is_judged",
            "ENOBUFS, EAGAIN and ENOMEM are this host's own trouble: tried again shortly, never in a storm",
            buffers,
        ),
        lent(
            "fault_41_without_a_route_a_tunnel_is_down_and_says_why",
            "where traffic could not go either it is a failure, at once and with its reason: ENETUNREACH",
            netns("change::without_a_route_it_is_down_with_the_reason"),
        ),
        lent(
            "fault_41_a_probe_that_the_link_cannot_carry_is_a_failure_with_its_reason",
            "EMSGSIZE, by the link's own MTU",
            netns("change::a_probe_longer_than_the_link_carries"),
        ),
        lent(
            "fault_41_what_this_host_s_firewall_refuses_is_a_failure_with_its_reason",
            "EPERM",
            netns("change::this_side's_own_firewall_refuses"),
        ),
        row(
            "fault_42_thousands_of_probes_are_spread_and_stay_so_after_a_stop",
            "10 000 tunnels at one probe a second each: in no hundredth of a second more than four times their share",
            spread,
        ),
    ]
}

fn stamps() {
    let wall = |at: Time, ahead: i64| WallTime(at.as_nanos().checked_add_signed(ahead).unwrap());
    let hour = i64::try_from(HOUR.as_nanos()).unwrap();
    let (empty, now) = (at_ms(50_000_000), at_ms(50_000_400));
    for arrived in [at_ms(50_000_000), at_ms(50_000_250), at_ms(50_000_400)] {
        let taken = |ahead| stamped(now, wall(now, ahead), wall(arrived, 0), empty);
        assert_eq!(taken(0), arrived, "to the nanosecond, as long as nobody sets the clock");
        // Set between the stamp and the reading: never before the queue was empty, never after now.
        assert_eq!(taken(hour), empty);
        assert_eq!(taken(-hour), now);
        for ahead in [1, -1, 1_000_000, -1_000_000, i64::from(u32::MAX), -i64::from(u32::MAX)] {
            assert!((empty..=now).contains(&taken(ahead)), "{ahead}");
        }
    }
    assert_eq!(stamped(now, WallTime(0), WallTime(u64::MAX), empty), now);
    assert_eq!(stamped(now, WallTime(u64::MAX), WallTime(0), empty), empty);
    assert_eq!(stamped(empty, WallTime(u64::MAX), WallTime(0), now), empty, "an empty queue that is to come");
}

/// Some tunnels that lose, some that do not, and one that dies and comes back.
fn a_day(mut each_second: impl FnMut(&mut Sim, u64)) -> Sim {
    let mut sim = Sim::new((0..6).map(tunnel).collect(), Vec::new(), 32);
    sim.far[1].loss_ppm = 100_000;
    sim.far[2].jitter = ms(200);
    for second in 0..240 {
        match second {
            60 => sim.cut(3),
            120 => sim.heal(3),
            _ => {}
        }
        each_second(&mut sim, second);
        sim.run_for(ms(1_000));
    }
    sim
}

fn wall_clock() {
    let facts = |sim: &mut Sim| {
        let of = |kind: &Kind| {
            let Kind::Transition { tunnel, from, to, rule, .. } = kind else { return None };
            Some((tunnel.clone(), *from, *to, *rule))
        };
        let moves: Vec<_> = sim.events.iter().filter_map(|event| of(&event.kind)).collect();
        let views: Vec<_> = (0..6).map(|tunnel| sim.view(tunnel)).map(|view| (view.counters, view.rtt)).collect();
        (moves, views)
    };
    let mut undisturbed = a_day(|_, _| {});
    let mut disturbed = a_day(|sim, second| {
        let now = sim.now.as_nanos() + 10 * u64::try_from(HOUR.as_nanos()).unwrap();
        let hour = u64::try_from(HOUR.as_nanos()).unwrap();
        let wall = [now, now + hour, now - hour][usize::try_from(second % 3).unwrap()];
        sim.command(|engine, now| engine.set_wall(now, WallTime(wall)));
    });
    let (one, other) = (facts(&mut undisturbed), facts(&mut disturbed));
    assert!(one.0.len() >= 6 + 3, "something happens: {:?}", one.0);
    assert_eq!(one, other);
}

fn suspended() {
    const TUNNELS: u32 = 2_000;
    let mut sim = Sim::new((0..TUNNELS).map(tunnel).collect(), Vec::new(), 33);
    sim.gaps_allowed = true;
    sim.run_until(at_ms(10_000));
    let before = sim.transitions().len();
    // All that is under way is answered while nobody listens.
    (0..TUNNELS).for_each(|tunnel| sim.cut(tunnel));
    sim.run_for(ms(15));
    sim.command(|engine, now| engine.handle_suspend(now, 8 * HOUR));
    (0..TUNNELS).for_each(|tunnel| sim.heal(tunnel));
    let woken = sim.now;
    sim.run_for(ms(20_000));
    assert_eq!(sim.transitions().len(), before);
    assert!((0..TUNNELS).all(|tunnel| sim.state(tunnel) == State::Healthy));
    let faults: u64 = (0..TUNNELS).map(|tunnel| sim.view(tunnel).counters.local_faults).sum();
    assert!(faults >= 10, "{faults} probes were under way");
    assert_eq!((0..TUNNELS).map(|tunnel| sim.view(tunnel).counters.lost).sum::<u64>(), 0);
    assert!(sim.events.iter().any(|event| matches!(&event.kind, Kind::LocalFault { fault: "suspend", .. })));
    assert_spread(&sim, woken, TUNNELS);
}

fn buffers() {
    let mut sim = Sim::new((0..20).map(tunnel).collect(), Vec::new(), 41);
    sim.run_until(at_ms(10_000));
    let before = sim.transitions();
    let (begun, tried) = (sim.sent.len(), 5_u64);
    for error in ["ENOBUFS", "EAGAIN", "ENOMEM"] {
        sim.far.iter_mut().for_each(|far| far.sending = Sending::LocalFault(error));
        sim.run_for(Duration::from_secs(tried));
        sim.far.iter_mut().for_each(|far| far.sending = Sending::Fine);
        sim.run_for(Duration::from_secs(5));
    }
    assert_eq!(sim.transitions(), before);
    assert_eq!((0..20).map(|tunnel| sim.view(tunnel).counters.lost).sum::<u64>(), 0);
    let refused = sim.sent[begun..].iter().filter(|sent| sent.sending != Sending::Fine).count();
    // Every 160 ms at last, for each of twenty tunnels.
    let most = 20 * 3 * usize::try_from(tried * 1_000 / 160 + 5).unwrap();
    assert!((20 * 3 * 10..=most).contains(&refused), "{refused} tries, {most} at most");
}

fn spread() {
    const TUNNELS: u32 = 10_000;
    let mut sim = Sim::new((0..TUNNELS).map(tunnel).collect(), Vec::new(), 42);
    sim.gaps_allowed = true;
    // Verdicts take three probes at once.
    sim.run_until(at_ms(3_000));
    let begun = sim.now;
    sim.run_for(ms(10_000));
    assert_spread(&sim, begun, TUNNELS);
    sim.stall(ms(7_300));
    let woken = sim.now;
    sim.run_for(ms(10_000));
    assert_spread(&sim, woken + ms(1), TUNNELS);
}

/// That from then on no hundredth of a second had more than four times its share of probes.
fn assert_spread(sim: &Sim, from: Time, tunnels: u32) {
    let mut slots = std::collections::BTreeMap::<u64, u32>::new();
    for sent in sim.sent.iter().filter(|sent| sent.at >= from) {
        *slots.entry(sent.at.as_nanos() / 10_000_000).or_default() += 1;
    }
    let most = slots.values().max().copied().unwrap();
    assert!(slots.len() > 500, "{} hundredths of a second", slots.len());
    assert!(most <= 4 * tunnels / 100, "{most} in one hundredth of a second, of {tunnels} a second");
}
