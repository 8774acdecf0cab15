//! How numbers are written: durations, shares, DSCP names, marks, ports; each read, and written again.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::defaults;
use super::near::nearest;
use super::section::expected;
use super::tree::Value;
use crate::engine::health::Ratio;

/// A duration with its unit. A bare number is refused: nobody would know of what.
pub(super) fn duration(
    value: &Value,
    range: &RangeInclusive<Duration>,
    key: &str,
    example: Duration,
) -> Result<Duration, String> {
    let text = value.as_text();
    let parsed = text.and_then(|text| humantime::parse_duration(text).ok());
    if let Some(parsed) = parsed.filter(|parsed| range.contains(parsed)) {
        return Ok(parsed);
    }
    let bare = || text.map(str::to_owned).or(value.as_integer().map(|number| number.to_string()));
    let meant = parsed.map(|parsed| parsed.clamp(*range.start(), *range.end())).or_else(|| seconds(&bare()?));
    let proposed = meant.filter(|meant| range.contains(meant)).unwrap_or(example);
    let kind = format!("a time from {} to {}, with its unit", written(*range.start()), written(*range.end()));
    Err(expected(&kind, value, key, &format!("{:?}", written(proposed))))
}

fn seconds(number: &str) -> Option<Duration> {
    number.trim().parse().ok().map(Duration::from_secs)
}

/// A duration as [`duration`] reads it.
pub(super) fn written(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// All of it.
const WHOLE: Ratio = Ratio(1_000_000);

/// A share: `"0.1%"`, or `0.001`.
pub(super) fn ratio(value: &Value, least: Ratio, key: &str, example: Ratio) -> Result<Ratio, String> {
    const KIND: &str = "a share such as \"0.1%\" or 0.001, up to 100% and exact to a ten-thousandth of a percent";
    let parsed = if let Value::Decimal(number) = value {
        millionths(number, 6)
    } else {
        let percent = value.as_text().and_then(|text| text.strip_suffix('%'));
        percent.and_then(|percent| millionths(percent.trim(), 4))
    };
    let kind = if least.0 > 0 { format!("{KIND}, and above 0") } else { KIND.to_owned() };
    // Whoever writes 1 may mean 1 % or all: only the writer knows.
    let bare = value.as_text().map(str::to_owned).or(value.as_integer().map(|number| number.to_string()));
    let meant = bare.and_then(|number| millionths(&number, 4));
    let proposed = meant.filter(|meant| (least..=WHOLE).contains(meant)).unwrap_or(example);
    let proposed = format!("{:?}", percent(proposed));
    parsed.filter(|ratio| (least..=WHOLE).contains(ratio)).ok_or_else(|| expected(&kind, value, key, &proposed))
}

/// A decimal number times ten to `places`, if that is whole.
fn millionths(number: &str, places: usize) -> Option<Ratio> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let fraction = fraction.trim_end_matches('0');
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > places {
        return None;
    }
    format!("{whole}{fraction:0<places$}").parse().ok().map(Ratio)
}

/// A share as [`ratio`] reads it.
pub(super) fn percent(Ratio(millionths): Ratio) -> String {
    let digits = format!("{}.{:04}", millionths / 10_000, millionths % 10_000);
    format!("{}%", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// The code points that have names: class selectors (RFC 2474), assured forwarding (RFC 2597),
/// expedited forwarding (RFC 3246), lower effort (RFC 8622).
const DSCP: [(&str, u8); 22] = [
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("le", 1),
];

/// A DSCP, by name or number.
pub(super) fn dscp(value: &Value) -> Result<u8, String> {
    const KIND: &str = "a number from 0 to 63 or a name such as \"cs6\", \"af41\" or \"ef\"";
    let name = value.as_text().unwrap_or_default();
    let named = DSCP.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number = value.as_integer().and_then(|number| u8::try_from(number).ok()).filter(|number| *number < 64);
    named.or(number).ok_or_else(|| {
        let near = nearest(name, DSCP.iter().map(|(name, _)| *name)).unwrap_or("cs6");
        expected(KIND, value, "dscp", &format!("{near:?}"))
    })
}

/// A DSCP as [`dscp`] reads it: by name, if it has one.
pub(super) fn dscp_written(number: u8) -> String {
    let name = DSCP.iter().find(|(_, value)| *value == number);
    name.map_or_else(|| number.to_string(), |(name, _)| format!("{name:?}"))
}

/// A firewall mark, alone or under a mask: `1`, `"0x1/0xff"`.
pub(super) fn fwmark(value: &Value) -> Result<(u32, u32), String> {
    const KIND: &str = "a mark such as 1, or one under a mask such as \"0x1/0xff\"";
    let wrong = || expected(KIND, value, "fwmark", "\"0x1/0xff\"");
    if let Some(number) = value.as_integer() {
        return u32::try_from(number).map(|mark| (mark, u32::MAX)).map_err(|_| wrong());
    }
    let text = value.as_text().ok_or_else(wrong)?;
    let (mark, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
    let (mark, mask) = number(mark).zip(number(mask)).ok_or_else(wrong)?;
    if mask == 0 {
        return Err(format!("is {text:?}, whose mask leaves no bit to look at; remove it"));
    }
    if mark & !mask != 0 {
        let fits = fwmark_written((mark & mask, mask));
        return Err(format!("is {text:?}, which has bits set that its mask leaves out; write fwmark = {fits}"));
    }
    Ok((mark, mask))
}

/// A number in decimal, or in hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    let digits = |text: &str, radix| {
        // A sign would pass otherwise.
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        u32::from_str_radix(text, radix).ok().filter(|_| plain)
    };
    text.strip_prefix("0x").map_or_else(|| digits(text, 10), |text| digits(text, 16))
}

/// A mark as [`fwmark`] reads it.
pub(super) fn fwmark_written((mark, mask): (u32, u32)) -> String {
    if mask == u32::MAX { format!("{mark:#x}") } else { format!("\"{mark:#x}/{mask:#x}\"") }
}

/// A port, or a range with both its ends: `179`, `"1000-2000"`.
pub(super) fn ports(value: &Value) -> Result<(u16, u16), String> {
    let (first, last) = defaults::PORT.into_inner();
    let wrong = || {
        let kind = format!("a port from {first} to {last} or a range such as \"1000-2000\"");
        expected(&kind, value, "destination_port", "179")
    };
    let port = |number: Option<u16>| number.filter(|number| defaults::PORT.contains(number));
    if let Some(number) = value.as_integer() {
        return port(u16::try_from(number).ok()).map(|only| (only, only)).ok_or_else(wrong);
    }
    let text = value.as_text().ok_or_else(wrong)?;
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let read = |text: &str| port(number(text.trim()).and_then(|number| u16::try_from(number).ok()));
    let (from, to) = read(from).zip(read(to)).ok_or_else(wrong)?;
    if from > to {
        return Err(format!("is {text:?}, which ends before it begins; write destination_port = \"{to}-{from}\""));
    }
    Ok((from, to))
}

/// Ports as [`ports`] reads them.
pub(super) fn ports_written((first, last): (u16, u16)) -> String {
    if first == last { first.to_string() } else { format!("\"{first}-{last}\"") }
}
