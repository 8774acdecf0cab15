//! What the router's kernel counts of its IPsec.

use std::collections::BTreeMap;

use adit::wire::Direction;
use libtest_mimic::Failed;

use crate::ipsec::{Case, Turn, spi_in, spi_out};
use crate::router::{Lab, Net};

/// The use of one association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Used {
    /// Packets sealed or opened.
    pub(crate) packets: u64,
    /// Packets refused: behind the replay window, seen before, with a wrong ICV.
    pub(crate) refused: [u64; 3],
}

/// The counters of what was refused, those that are not zero.
pub(crate) fn refused(net: &Net) -> Result<BTreeMap<String, u64>, Failed> {
    let text = net.router("cat /proc/net/xfrm_stat")?;
    let counters = text.lines().filter_map(|line| {
        let (name, count) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), count.trim().parse::<u64>().ok()?))
    });
    let counters: BTreeMap<String, u64> = counters.collect();
    if !counters.contains_key("XfrmInStateSeqError") {
        return Err(format!("this kernel does not count: {text}").into());
    }
    Ok(counters.into_iter().filter(|(_, count)| *count > 0).collect())
}

/// Nothing was refused.
pub(crate) fn none_refused(net: &Net) -> Result<(), Failed> {
    let refused = refused(net)?;
    if refused.is_empty() { Ok(()) } else { Err(format!("the router's IPsec refused packets: {refused:?}").into()) }
}

/// The associations, by SPI.
pub(crate) fn associations(net: &Net) -> Result<BTreeMap<u32, Used>, Failed> {
    used(&net.router("ip -s xfrm state")?)
}

/// The router has opened every probe, sealed its answers, but for those that go bare, and refused
/// nothing; beside them there were up to so many packets of others. How many it opened and sealed.
pub(crate) fn each_probe_was_opened(lab: &Lab, cases: &[Case], others: u64) -> Result<[u64; 2], Failed> {
    let before = lab.views();
    let used = associations(&lab.net)?;
    let after = lab.views();
    let mut packets = [0; 2];
    for (number, case) in (1..).zip(cases) {
        let (sent, received) = (before[number - 1].counters.sent, before[number - 1].counters.received);
        let sent = sent..=after[number - 1].counters.sent + others;
        let of = |spi| used.get(&spi).copied().ok_or_else(|| format!("no association {spi:#x}"));
        let (opened, sealed) = (of(spi_out(number, Turn::First))?, of(spi_in(number, Turn::First))?);
        let answered = match case.style.direction {
            Direction::Bidirectional => sealed.packets >= received,
            Direction::Unidirectional => sealed.packets == 0,
        };
        let clean = [opened.refused, sealed.refused] == [[0; 3]; 2];
        if !(sent.contains(&opened.packets) && answered && clean) {
            return Err(format!("{case}: sent {sent:?}, received {received}; {opened:?}, {sealed:?}").into());
        }
        packets = [packets[0] + opened.packets, packets[1] + sealed.packets];
    }
    none_refused(&lab.net)?;
    Ok(packets)
}

/// Reads `ip -s xfrm state`.
fn used(text: &str) -> Result<BTreeMap<u32, Used>, Failed> {
    let mut all = BTreeMap::new();
    let mut spi = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.split('(').next().and_then(|digits| digits.parse::<u64>().ok());
        match words[..] {
            ["proto", "esp", "spi", text, ..] => {
                let digits = text.trim_start_matches("0x").split('(').next().unwrap_or_default();
                spi = u32::from_str_radix(digits, 16).ok();
            }
            [bytes, packets] if bytes.ends_with("(bytes),") && packets.ends_with("(packets)") => {
                let (Some(spi), Some(packets)) = (spi, number(packets)) else { continue };
                all.entry(spi).or_insert_with(Used::default).packets = packets;
            }
            ["replay-window", window, "replay", replay, "failed", failed] => {
                let (Some(spi), Some(a), Some(b), Some(c)) = (spi, number(window), number(replay), number(failed))
                else {
                    continue;
                };
                all.entry(spi).or_insert_with(Used::default).refused = [a, b, c];
            }
            _ => {}
        }
    }
    if all.is_empty() && !text.is_empty() { Err(format!("not understood: {text}").into()) } else { Ok(all) }
}
