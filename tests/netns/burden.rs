//! Traffic beside the probes, a full queue, a prober that cannot run: its own trouble, and no
//! verdict about a tunnel (law 4).

use std::net::IpAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use adit::engine::settings::{Check, Timeout};
use adit::engine::snapshot::TunnelView;
use adit::engine::{State, Tunnel};
use adit::reflect::plan::Fault;
use adit::wire::{Family, Reject, checksum};

use crate::by_hand::{Injector, Packet, Tap};
use crate::kit::{
    FAR, NEAR, Prober, REQUEST, REQUEST_BARE, Scene, address, eventually, hasty, ms, patient, tunnel, tunnel_of,
};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("burden::the_users'_traffic_does_not_reach_the_prober", the_users_traffic_does_not_reach_the_prober),
        case("burden::a_full_receive_queue_is_no_failure", a_full_receive_queue_is_no_failure),
        case("burden::a_queue_that_overflowed_is_known_before_anything_is_judged", an_overflow_is_known_in_time),
        case("burden::broken_checksums_do_not_pass_for_a_full_queue", broken_checksums_do_not_pass_for_a_full_queue),
        case("burden::a_prober_that_could_not_run_judges_nobody", a_prober_that_could_not_run_judges_nobody),
        case("burden::a_tunnel_that_died_meanwhile_is_found", a_tunnel_that_died_meanwhile_is_found),
    ]
}

/// Two tunnels, so that both kinds of socket are open; their checks are patient.
fn two() -> [Tunnel; 2] {
    let (mut inside, mut bare) = (tunnel("inside", REQUEST), tunnel("bare", REQUEST_BARE));
    (inside.check, bare.check) = (patient(), patient());
    bare.onion.encapsulation = adit::wire::gre::Options::keyed(1).into();
    [inside, bare]
}

fn the_users_traffic_does_not_reach_the_prober() {
    const ROUNDS: usize = 400;
    let tunnels = two();
    let scene = Scene::healthy(&tunnels);
    let injector = Injector::open(&scene.pair.far);
    let kinds = [gre(&udp()), gre(&echo(8)), gre(&echo(0)), keyed_gre(&udp()), echo(0), echo(8)];
    let round: Vec<_> = kinds.iter().cycle().take(500).map(|packet| (address(NEAR[0]), packet.clone())).collect();
    let packets = u64::try_from(ROUNDS * round.len()).unwrap();

    let (sleeps, rejects) = (scene.prober.sleeps(), scene.prober.all_rejects());
    (0..ROUNDS).for_each(|_| injector.send(&round));
    let sleeps = scene.prober.sleeps() - sleeps;
    assert!(sleeps < packets / 100, "{packets} packets woke the prober {sleeps} times");
    assert_eq!(scene.prober.all_rejects(), rejects, "no packet came as far as the parser");
    assert_eq!(overflows(&scene.prober), 0);

    for Tunnel { name, .. } in &tunnels {
        scene.prober.await_samples(name, 5);
        let view = scene.prober.view(name);
        assert_eq!((view.counters.lost, view.counters.late), (0, 0), "{view:#?}");
        assert_eq!(scene.prober.entered(name), [State::Healthy]);
    }
}

fn overflows(prober: &Prober) -> u64 {
    prober.local_faults().iter().find(|(name, _)| *name == "receive-overflow").map_or(0, |(_, count)| *count)
}

fn udp() -> Vec<u8> {
    let mut packet = ip("10.20.0.5", "10.30.0.5", 17, 1_000);
    packet[20..28].copy_from_slice(&[0x30, 0x39, 0, 53, 0x03, 0xD4, 0, 0]);
    packet
}

/// Somebody's ping, and its answer: as long as a probe, and not one.
fn echo(kind: u8) -> Vec<u8> {
    let mut packet = ip(FAR[0], NEAR[0], 1, 100);
    packet[20] = kind;
    let sum = checksum::of(&packet[20..]);
    packet[22..24].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn gre(inner: &[u8]) -> Vec<u8> {
    let mut packet = ip(FAR[0], NEAR[0], 47, 24 + inner.len());
    packet[22..24].copy_from_slice(&[0x08, 0x00]);
    packet[24..].copy_from_slice(inner);
    packet
}

fn keyed_gre(inner: &[u8]) -> Vec<u8> {
    let mut packet = ip(FAR[0], NEAR[0], 47, 28 + inner.len());
    packet[20..28].copy_from_slice(&[0x20, 0, 0x08, 0x00, 0, 0, 0, 1]);
    packet[28..].copy_from_slice(inner);
    packet
}

fn ip(source: &str, destination: &str, protocol: u8, length: usize) -> Vec<u8> {
    let octets = |text| match address(text) {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => panic!("an IPv4 address"),
    };
    let mut packet = vec![0; length];
    let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
    packet[..12].copy_from_slice(&[0x45, 0, high, low, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
    packet[12..16].copy_from_slice(&octets(source));
    packet[16..20].copy_from_slice(&octets(destination));
    let sum = checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Holds up the prober's loop until it is let go.
pub(crate) struct HeldUp {
    release: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl HeldUp {
    pub(crate) fn new(prober: &Prober) -> Self {
        let (handle, (held, is_held), (release, released)) = (prober.handle(), mpsc::channel(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let hold = move |_: &mut adit::engine::Engine, _| {
                held.send(()).unwrap();
                let _ = released.recv();
            };
            runtime.block_on(handle.ask(hold)).unwrap();
        });
        is_held.recv().unwrap();
        Self { release, thread }
    }

    pub(crate) fn release(self) {
        self.release.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// Answers are lost in the queue in front of the prober while somebody fills it with what the
/// kernel's filter must let pass.
fn a_full_receive_queue_is_no_failure() {
    const WAY: Duration = ms(2_000);
    let mut slow = tunnel("t", REQUEST);
    slow.check = Check { timeout: Timeout::Fixed(2 * WAY), ..patient() };
    let scene = Scene::healthy(&[slow]);
    // So that many probes are on their way, and all their answers come when the queue is full.
    scene.far.suffer(vec![Fault { delay: WAY, ..Fault::default() }]);
    let probe = Tap::open(&scene.pair.far).take(10).remove(0);
    let mut stale = Packet::answer(&probe);
    stale.change(|payload| payload[24..32].fill(0xEE));
    let (injector, volley) = (Injector::open(&scene.pair.far), vec![stale.outward(); 500]);
    let before = scene.prober.view("t").counters;

    let held = HeldUp::new(&scene.prober);
    (0..40).for_each(|_| injector.send(&volley));
    std::thread::sleep(WAY);
    held.release();

    eventually("a counted overflow", || overflows(&scene.prober) > 0);
    scene.far.heal();
    let counted = |view: &TunnelView| view.counters.local_faults > before.local_faults;
    scene.prober.await_view("t", "lost answers that are no samples", counted);
    scene.prober.await_samples("t", 20);
    let after = scene.prober.view("t").counters;
    assert_eq!(after.lost, before.lost, "what the queue lost is no failure: {after:?}");
    assert_eq!(scene.prober.entered("t"), [State::Healthy]);
}

/// One tunnel with long pauses: the only answer under way is lost in the queue, and nothing arrives
/// behind it that would bring the news.
fn an_overflow_is_known_in_time() {
    let mut slow = tunnel("t", REQUEST);
    slow.check.interval = Duration::from_secs(2);
    slow.check.timeout = Timeout::Fixed(ms(1_500));
    slow.check.early_retry = false;
    slow.check.rules.down_window = ms(1_900);
    let scene = Scene::healthy(&[slow]);
    scene.far.suffer(vec![Fault { delay: ms(400), ..Fault::default() }]);
    let tap = Tap::open(&scene.pair.far);
    let probe = tap.take(1).remove(0);
    let mut stale = Packet::answer(&probe);
    stale.change(|payload| payload[24..32].fill(0xEE));
    let (injector, volley) = (Injector::open(&scene.pair.far), vec![stale.outward(); 500]);
    let before = scene.prober.view("t").counters;

    // The next probe leaves while nobody holds it up; its answer meets a full queue.
    tap.take(1);
    let held = HeldUp::new(&scene.prober);
    (0..100).for_each(|_| injector.send(&volley));
    std::thread::sleep(ms(600));
    held.release();

    eventually("a counted overflow", || overflows(&scene.prober) > 0);
    scene.prober.await_samples("t", 2);
    let after = scene.prober.view("t").counters;
    assert_eq!(after.lost, before.lost, "what the queue lost is no failure: {after:?}");
}

/// The kernel counts ICMPv6 packets with a wrong checksum in the same counter as what a full queue
/// loses, and anybody can send them: a dead tunnel must not stay healthy by them.
fn broken_checksums_do_not_pass_for_a_full_queue() {
    let mut dead = tunnel_of("dead", REQUEST_BARE, [NEAR[1], FAR[1]], 1);
    dead.check = hasty();
    let scene = Scene::healthy(&[dead, tunnel("t", REQUEST)]);
    // They have seen a probe, or the kernel's filter would drop all that they send.
    let epoch = Tap::open(&scene.pair.far).take(1)[0].payload()[16..24].to_vec();
    let injector = Injector::of(&scene.pair.far, Family::V6);
    let (stop, stopped) = mpsc::channel::<()>();
    let stranger = std::thread::spawn(move || {
        let [broken, whole] = [1, 0].map(|error| echo_v6(&epoch, error));
        while stopped.recv_timeout(ms(20)) == Err(mpsc::RecvTimeoutError::Timeout) {
            injector.send(&[(address(NEAR[1]), broken.clone()), (address(NEAR[1]), whole.clone())]);
        }
    });
    scene.prober.await_samples("dead", 5);
    scene.far.cut();
    scene.prober.await_state("dead", State::Down);
    drop(stop);
    stranger.join().unwrap();
    assert_eq!(overflows(&scene.prober), 0);
    assert!(scene.prober.rejects(Reject::Tag) > 0, "the strangers were let in");
}

/// An ICMPv6 echo reply with our magic and this epoch, its checksum wrong by this much.
fn echo_v6(epoch: &[u8], error: u16) -> Vec<u8> {
    let mut packet = vec![0; 40 + 8 + 72];
    let octets = |text| match address(text) {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => panic!("an IPv6 address"),
    };
    packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 80, 58, 64]);
    packet[8..24].copy_from_slice(&octets(FAR[1]));
    packet[24..40].copy_from_slice(&octets(NEAR[1]));
    packet[40] = 129;
    packet[48..53].copy_from_slice(b"adit\x01");
    packet[64..72].copy_from_slice(epoch);
    adit::wire::icmp::seal(crate::kit::ends([NEAR[1], FAR[1]]), &mut packet[40..]);
    let sum = u16::from_be_bytes([packet[42], packet[43]]).wrapping_add(error);
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn a_prober_that_could_not_run_judges_nobody() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    let before = scene.prober.view("t").counters;
    let held = HeldUp::new(&scene.prober);
    // Longer than the time-out and the short window together; nothing to be awaited happens.
    std::thread::sleep(Duration::from_millis(2_000));
    held.release();
    scene.prober.await_samples("t", 10);
    let after = scene.prober.view("t").counters;
    assert_eq!(after.lost, before.lost, "{after:?}");
    assert!(scene.prober.local_faults().iter().any(|(name, _)| *name == "stall"));
    assert_eq!(scene.prober.entered("t"), [State::Healthy]);
}

fn a_tunnel_that_died_meanwhile_is_found() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    let held = HeldUp::new(&scene.prober);
    scene.far.cut();
    std::thread::sleep(Duration::from_millis(1_000));
    held.release();
    scene.prober.await_state("t", State::Down);
}
