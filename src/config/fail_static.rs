//! `[fail_static]`: when this host is suspected rather than its tunnels.

use super::notation;
use super::section::Section;
use crate::engine::FailStatic;
use crate::engine::health::Ratio;

/// Half of the tunnels.
pub(super) const SHARE: Ratio = Ratio(500_000);
const LEAST: Ratio = Ratio(10_000);

/// Reads `[fail_static]`; `None` if this host is never suspected.
pub(super) fn read(root: &mut Section<'_>) -> Option<FailStatic> {
    let usual = FailStatic { share: SHARE, while_clean: false };
    let Some(mut section) = root.section("fail_static", "[fail_static]") else { return Some(usual) };
    let enabled = section.boolean("enabled", true);
    let share = section.read("share", |value| notation::ratio(value, LEAST, "share", SHARE));
    let while_clean = section.boolean("while_clean", false);
    section.finish();
    let fail_static = FailStatic {
        share: share.map_or(usual.share, |share| share.value),
        while_clean: while_clean.map_or(usual.while_clean, |while_clean| while_clean.value),
    };
    enabled.is_none_or(|enabled| enabled.value).then_some(fail_static)
}
