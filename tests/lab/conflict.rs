//! Associations that the kernel has, too: adit never sends on them, and says why.

use std::time::Duration;

use adit::engine::State;
use adit::io::netns;
use libtest_mimic::{Failed, Trial};

use crate::counters;
use crate::ipsec::{Ipsec, Pace, Turn, of, plain, spi_in, spi_out, states};
use crate::router::{STYLES, batch, run};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("an_association_that_this_kernel_has_too_is_not_sent_on_until_it_is_gone", while_it_runs),
        Trial::test("an_association_that_this_kernel_has_at_the_start_is_not_sent_on", at_the_start),
    ]
}

const SOON: Duration = Duration::from_secs(30);

fn halted(ipsec: &Ipsec) -> Result<(), Failed> {
    ipsec.lab.until(SOON, "halted", |view| {
        view.name != "t1" || view.state == State::Unknown && view.obstacle == Some("spi-conflict")
    })?;
    let sent = ipsec.lab.views()[0].counters.sent;
    let other = ipsec.lab.views()[1].counters.received;
    ipsec.lab.until(SOON, "probed on", |view| view.name != "t2" || view.counters.received > other + 5)?;
    let after = ipsec.lab.views()[0].counters.sent;
    if after == sent { Ok(()) } else { Err(format!("{} more were sent", after - sent).into()) }
}

fn while_it_runs() -> Result<(), Failed> {
    let cases = [plain(STYLES[0]), plain(STYLES[0])];
    let ipsec = Ipsec::new(&cases, Pace::Brisk)?;
    ipsec.lab.all_become(State::Healthy, SOON)?;
    let near = |script: &str| netns::within(Some(&ipsec.lab.net.near), || run(script));
    let key = format!("aead 'rfc4106(gcm(aes))' 0x{} 128", "4b".repeat(36));
    // Another address's SPIs are another's.
    let elsewhere = ["10.77.0.1", "10.77.0.2"];
    let [local, far] = of(1, &cases[0]).outer;
    let add = |src: &str, dst: &str, spi: u32| {
        near(&format!("ip xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel {key}"))
    };
    add(&local, elsewhere[0], spi_out(1, Turn::First))?;
    add(elsewhere[1], &local, spi_out(1, Turn::First))?;
    add(&local, &far, spi_in(1, Turn::First))?;
    let received = ipsec.lab.views()[0].counters.received;
    ipsec.lab.until(SOON, "probed on", |view| view.counters.received > received + 5 || view.name == "t2")?;
    near("ip xfrm state flush")?;

    for (src, dst, spi) in [(&local, &far, spi_out(1, Turn::First)), (&far, &local, spi_in(1, Turn::First))] {
        add(src, dst, spi)?;
        halted(&ipsec)?;
        near(&format!("ip xfrm state del src {src} dst {dst} proto esp spi {spi:#x}"))?;
        ipsec.lab.all_become(State::Healthy, SOON)?;
    }
    counters::none_refused(&ipsec.lab.net)
}

fn at_the_start() -> Result<(), Failed> {
    let cases = [plain(STYLES[0]), plain(STYLES[0])];
    let first = states(1, &cases[0], Turn::First);
    let ipsec = Ipsec::prepared(&cases, Pace::Brisk, |near| netns::within(Some(near), || batch(&first)))?;
    halted(&ipsec)?;
    if ipsec.lab.views()[0].counters.sent > 0 {
        return Err("it was sent on before anybody looked".into());
    }
    netns::within(Some(&ipsec.lab.net.near), || run("ip xfrm state flush"))?;
    ipsec.lab.all_become(State::Healthy, SOON)
}
