//! Kills of the built program while it sends ESP, counted at the far end; 200 of them, against a kernel's
//! replay window, in `tests/lab/crash.rs`.

use adit::engine::numbers::BLOCK;
use adit::io::netns;

use crate::kills::{Killer, Marks, Tally, Victim, Wire, now};
use crate::kit::{PATIENCE, eventually, holds_within, ms};
use crate::sealed::{reflector, site};
use crate::site::Site;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("crash::over_25_kills_no_number_is_used_twice", over_25_kills_no_number_is_used_twice),
        case("crash::the_tally_notices_what_it_is_for", the_tally_notices_what_it_is_for),
    ]
}

const KILLS: u32 = 25;
const TUNNEL: &str = "ams-1";
const OUT: u32 = 0x1001;
const BACK: u32 = 0x2001;

fn over_25_kills_no_number_is_used_twice() {
    let site = hasty();
    let _far = reflector(&site, true);
    let start = || netns::within(Some(&site.pair.near), || site.command("run", "adit.conf").spawn());
    let wire = Wire::tap(&site.pair.far).unwrap();
    let life = Victim(start().unwrap());
    eventually("a daemon that answers", || site.adit(&["sa", "show"]).status.success());
    let begun = site.say(&["sa", "begin", TUNNEL]);
    let first = begun.split_whitespace().last().unwrap().parse().unwrap();
    let (tally, state_dir) = (Tally::new(&[(OUT, BACK, first)]), site.path("state"));
    let mut killer = Killer { wire, tally, state_dir, start: Box::new(start) };
    await_health(&site, &mut killer);
    killer.end(life, &Marks::from([(OUT, first)])).unwrap();

    killer.kill(KILLS).unwrap_or_else(|why| panic!("{why}; {}", site.read("adit.conf.log")));

    let before = killer.marks().unwrap();
    let life = Victim(start().unwrap());
    await_health(&site, &mut killer);
    assert!(site.entered().iter().all(|state| state == "healthy"), "nothing in between: {:?}", site.entered());
    killer.end(life, &before).unwrap();
    judge(&mut killer, first);
}

fn judge(killer: &mut Killer<'_>, first: u64) {
    killer.tally.verdict().unwrap();
    // What the far end's replay window refuses gets no answer.
    let answered = await_what(killer, |killer| killer.tally.all_answered());
    let (tally, seen) = (&killer.tally, format!("{KILLS} kills: {}", killer.tally));
    println!("{seen}");
    assert!(answered, "{seen}");
    assert!(tally.speaking() >= KILLS * 3 / 4 && tally.packets(OUT) >= u64::from(KILLS) * 4, "{seen}");
    assert!(tally.highest(OUT) >= first + u64::from(tally.speaking() - 1) * BLOCK, "a block for each life: {seen}");
}

fn await_health(site: &Site, killer: &mut Killer<'_>) {
    let healthy = await_what(killer, |_| site.state(TUNNEL) == "healthy");
    assert!(healthy, "{} is {}: {}", TUNNEL, site.state(TUNNEL), site.read("adit.conf.log"));
}

/// Waits without looking away from the wire.
fn await_what(killer: &mut Killer<'_>, holds: impl Fn(&Killer<'_>) -> bool) -> bool {
    holds_within(PATIENCE, &mut || {
        killer.watch(now() + ms(20)).unwrap();
        holds(killer)
    })
}

/// An ESP tunnel with a probe in 10 ms, which waits long for an answer.
fn hasty() -> Site {
    let site = site("static");
    let text = site.read("adit.conf").replace("interval = \"100ms\"", "interval = \"10ms\"");
    let text = text.replace("\"400ms\"", "\"5s\"").replace("\"900ms\"", "\"12s\"");
    site.write("adit.conf", &text.replace("degraded_window = \"4s\"\n", ""));
    site
}

fn the_tally_notices_what_it_is_for() {
    let verdict = |mark: u64, numbers: &[u64], end: u64| {
        let mut tally = Tally::new(&[(OUT, BACK, mark)]);
        numbers.iter().for_each(|number| tally.add((OUT, u32::try_from(number & 0xFFFF_FFFF).unwrap())));
        tally.end_life(&Marks::from([(OUT, mark)]), &Marks::from([(OUT, end)]));
        tally.verdict().err().unwrap_or_else(|| format!("up to {}", tally.highest(OUT)))
    };
    let edge = (1 << 32) - 1;
    assert_eq!(verdict(edge, &[edge, edge + 1, edge + 5], edge + 6), format!("up to {}", edge + 5));
    for (mark, numbers, end, words) in [
        (7, vec![7, 8, 8], 10, "8 twice"),
        (7, vec![7, 9, 8], 10, "8 after 9"),
        (edge, vec![edge, edge + 1, edge], edge + 6, "4294967295 twice"),
        (7, vec![6], 10, "from 6 to 6, of 7 to 10"),
        (7, vec![7, 10], 10, "from 7 to 10, of 7 to 10"),
    ] {
        let verdict = verdict(mark, &numbers, end);
        assert!(verdict.contains(words), "{numbers:?}: {verdict}");
    }
}
