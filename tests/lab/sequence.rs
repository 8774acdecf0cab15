//! ESP's sequence numbers against the kernel's: replays, forgeries, associations that begin anew or
//! follow one another, and the step past 2³².

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::time::Duration;

use adit::daemon::records::begun;
use adit::engine::associations::GRACE;
use adit::engine::numbers::Numbers;
use adit::engine::snapshot::TunnelView;
use adit::engine::{Material, State};
use adit::io::netns;
use adit::wire::{Reject, esp};
use libtest_mimic::{Failed, Trial};
use nix::libc;
use socket2::{Domain, Socket, Type};

use crate::counters;
use crate::ipsec::{Case, Ipsec, Pace, Turn, material, plain, spi_in, spi_out, states};
use crate::router::{STYLES, address};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("an_answer_or_a_probe_that_is_sent_again_is_refused_and_changes_nothing", replayed),
        Trial::test("a_forged_answer_far_ahead_changes_nothing", forged_far_ahead),
        Trial::test("a_router_that_loses_its_associations_is_down_until_they_are_back", router_begins_anew),
        Trial::test("extended_sequence_numbers_go_on_past_the_lower_half_at_both_ends", past_the_lower_half),
        Trial::test("fresh_associations_take_over_without_a_lost_probe", fresh_pair),
    ]
}

const SOON: Duration = Duration::from_secs(30);

fn one() -> Result<Ipsec, Failed> {
    let ipsec = Ipsec::new(&[plain(STYLES[0])], Pace::Brisk)?;
    ipsec.lab.all_become(State::Healthy, SOON)?;
    Ok(ipsec)
}

/// So many answers from now on.
fn answered(ipsec: &Ipsec, times: u64) -> Result<(), Failed> {
    let before = ipsec.lab.views()[0].counters.received;
    ipsec.lab.until(SOON, "answered", |view| view.counters.received >= before + times)
}

fn replayed() -> Result<(), Failed> {
    const COPIES: u64 = 50;
    let ipsec = one()?;
    let answer = next_esp(&ipsec.lab.net.near)?;
    let probe = next_esp(&ipsec.lab.net.far)?;
    answered(&ipsec, 3)?;
    let before = ipsec.lab.views().remove(0);
    for _ in 0..COPIES {
        send(&ipsec.lab.net.far, &answer)?;
    }
    until_rejected(&ipsec, Reject::EspReplay, COPIES)?;
    unmoved(&before, &ipsec.lab.views()[0], "esp-replay")?;
    send(&ipsec.lab.net.near, &probe)?;
    answered(&ipsec, 3)?;
    // The kernel agrees about what a replay is; the rest of what adit sent it took.
    let refused: Vec<(String, u64)> = counters::refused(&ipsec.lab.net)?.into_iter().collect();
    if refused == [("XfrmInStateSeqError".to_owned(), 1)] { Ok(()) } else { Err(format!("{refused:?}").into()) }
}

fn forged_far_ahead() -> Result<(), Failed> {
    let ipsec = one()?;
    let mut answer = next_esp(&ipsec.lab.net.near)?;
    let before = ipsec.lab.views().remove(0);
    // The upper byte of the sequence number, behind the outer header and the SPI.
    answer[24] ^= 0x40;
    send(&ipsec.lab.net.far, &answer)?;
    until_rejected(&ipsec, Reject::EspIcv, 1)?;
    answered(&ipsec, 5)?;
    let after = ipsec.lab.views().remove(0);
    if after.counters.forged != 1 {
        return Err(format!("not counted: {:?}", after.counters).into());
    }
    let as_before = TunnelView { counters: adit::engine::Counters { forged: 0, ..after.counters }, ..after };
    unmoved(&before, &as_before, "esp-icv")
}

/// Neither state nor samples nor counters have moved, but by the tunnel's own answers.
fn unmoved(before: &TunnelView, after: &TunnelView, reject: &str) -> Result<(), Failed> {
    let of = |view: &TunnelView| {
        let counters = view.counters;
        (
            view.state,
            view.since,
            view.window.failures,
            counters.duplicate,
            counters.late,
            counters.forged,
            counters.lost,
        )
    };
    let told = after.last_reject.as_ref().map(|reject| reject.reason.as_str());
    if of(before) == of(after) && told == Some(reject) { Ok(()) } else { Err(format!("{before:?}\n{after:?}").into()) }
}

/// A router that has lost its associations refuses all probes. With the same ones made anew by hand its
/// numbers begin at 1 again: replays, until they have passed those that were there before, but to a
/// tunnel without a window.
fn router_begins_anew() -> Result<(), Failed> {
    let without = Case { window: 0, ..plain(STYLES[0]) };
    let ipsec = Ipsec::new(&[plain(STYLES[0]), without], Pace::Brisk)?;
    ipsec.lab.all_become(State::Healthy, SOON)?;
    ipsec.lab.until(SOON, "answered often", |view| view.counters.received >= 20)?;
    ipsec.lab.router("ip xfrm state flush")?;
    ipsec.lab.all_become(State::Down, SOON)?;
    if let Some(reject) = &ipsec.lab.views()[0].last_reject {
        return Err(format!("no answer could come, but {reject:?}").into());
    }
    let states: String = (1..).zip(&ipsec.cases).map(|(number, case)| states(number, case, Turn::First)).collect();
    ipsec.lab.net.router_batch(&states)?;
    ipsec.lab.comes_back(1)?;
    let [windowed, open] = [0, 1].map(|place| ipsec.lab.views().swap_remove(place));
    if windowed.state != State::Down || open.last_reject.is_some() {
        return Err(format!("{windowed:?}\n{open:?}").into());
    }
    until_rejected(&ipsec, Reject::EspReplay, 1)?;
    ipsec.lab.all_become(State::Degraded, SOON)
}

fn past_the_lower_half() -> Result<(), Failed> {
    let esn = Case { esn: true, ..plain(STYLES[0]) };
    let ipsec = one()?;
    // Both ends stand just below 2^32, and have not met there.
    let near_the_end = "replay-window 64 replay-seq 0xfffffff0 replay-oseq 0xfffffff0";
    let states = states(1, &esn, Turn::First).replace("replay-window 64", near_the_end);
    ipsec.lab.net.router_batch(&format!("xfrm state flush\n{states}"))?;
    let key = material(1, &esn, Turn::First).outbound_key();
    ipsec.lab.ask(move |engine, now| {
        engine.handle_state_lost(now, key, "this trial says so");
        engine.begin(now, 0, Numbers::new(0xFFFF_FFF1, u64::MAX, u64::MAX))
    });
    let before = next_esp(&ipsec.lab.net.near)?;
    answered(&ipsec, 40)?;
    let text = ipsec.lab.router("ip xfrm state")?;
    let count = |words: &str| text.matches(words).count();
    if (count("seq-hi 0x1, seq"), count("oseq-hi 0x1, oseq")) != (1, 1) {
        return Err(format!("not past it: {text}").into());
    }
    // What came before the step is known for a replay after it.
    let lower_half = &before[24..28];
    if lower_half < [0xFF, 0xFF, 0xFF, 0xF1].as_slice() {
        return Err(format!("not from below the step: {lower_half:x?}").into());
    }
    send(&ipsec.lab.net.far, &before)?;
    until_rejected(&ipsec, Reject::EspReplay, 1)
}

/// First the router's inbound association, then this side's pair, then the router's outbound one.
fn fresh_pair() -> Result<(), Failed> {
    let ipsec = one()?;
    let case = ipsec.cases[0];
    let before = ipsec.lab.views().remove(0);
    let states = states(1, &case, Turn::Second);
    let (inbound, outbound) = states.split_once('\n').ok_or("two associations")?;
    ipsec.lab.net.router_batch(inbound)?;
    answered(&ipsec, 3)?;
    install(&ipsec, material(1, &case, Turn::Second))?;
    answered(&ipsec, 3)?;
    ipsec.lab.net.router_batch(outbound)?;
    answered(&ipsec, 5)?;
    // The old pair is not needed any more.
    ipsec.lab.net.router_batch(&format!(
        "xfrm state delete src 192.0.2.1 dst 198.51.100.1 proto esp spi {:#x}
xfrm state delete src 198.51.100.1 dst 192.0.2.1 proto esp spi {:#x}\n",
        spi_out(1, Turn::First),
        spi_in(1, Turn::First)
    ))?;
    answered(&ipsec, 5)?;
    let after = ipsec.lab.views().remove(0);
    let used = counters::associations(&ipsec.lab.net)?;
    let both =
        [spi_out(1, Turn::Second), spi_in(1, Turn::Second)].map(|spi| used.get(&spi).map_or(0, |used| used.packets));
    if after.counters.lost != before.counters.lost
        || both[0] < 13
        || both[1] < 10
        || !counters::refused(&ipsec.lab.net)?.is_empty()
    {
        return Err(format!("{:?} {used:?} {:?}", after.counters, counters::refused(&ipsec.lab.net)?).into());
    }
    ipsec.lab.none_rejected()
}

fn install(ipsec: &Ipsec, material: Material) -> Result<(), Failed> {
    let pair = begun(&material)?;
    let installed = ipsec.lab.ask(move |engine, now| engine.install(now, 0, pair, GRACE));
    installed.map_err(|refusal| refusal.to_string().into())
}

fn until_rejected(ipsec: &Ipsec, reject: Reject, times: u64) -> Result<(), Failed> {
    let rejected = || ipsec.lab.ask(move |engine, _| engine.rejects()[reject.index()]);
    ipsec.lab.until(SOON, "refused often enough", |_| rejected() >= times)?;
    if rejected() == times || times == 1 { Ok(()) } else { Err(format!("{reject} {} times", rejected()).into()) }
}

/// The next ESP packet over IPv4 that comes to a namespace, from its IP header on.
fn next_esp(namespace: &File) -> io::Result<Vec<u8>> {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(i32::from(esp::PROTOCOL).into()));
    let mut socket = netns::within(Some(namespace), open)?;
    socket.set_read_timeout(Some(SOON))?;
    let mut packet = vec![0; 2_048];
    let length = socket.read(&mut packet)?;
    packet.truncate(length);
    Ok(packet)
}

/// Sends an IPv4 packet from a namespace as it is.
fn send(namespace: &File, packet: &[u8]) -> io::Result<()> {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(libc::IPPROTO_RAW.into()));
    let socket = netns::within(Some(namespace), open)?;
    let [.., a, b, c, d] = packet[..20] else { return Err(io::ErrorKind::InvalidData.into()) };
    let to = SocketAddr::new(address(&format!("{a}.{b}.{c}.{d}")), 0);
    socket.send_to(packet, &to.into()).map(drop)
}
