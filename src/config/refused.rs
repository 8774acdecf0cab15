//! What the configuration knows and this version does not do: refused, never ignored.

use super::section::{Section, expected};

const NOT_YET: &str = "is not supported by this version yet; remove it";

/// Sections of later versions.
pub(super) fn sections(root: &mut Section<'_>) {
    for key in ["rule", "notify", "endpoint"] {
        root.refuse(key, NOT_YET);
    }
}

/// Keys of `[daemon]` of later versions.
pub(super) fn daemon(section: &mut Section<'_>) {
    section.refuse("metrics", NOT_YET);
}

/// Reads `[kernel]`. Whoever writes it wants routes in the kernel, or says in so many words that
/// there are to be none; anything else would be silence where something was asked for.
pub(super) fn kernel(root: &mut Section<'_>) {
    let Some(mut section) = root.section("kernel", "[kernel]") else { return };
    let only = "this version keeps routes in its own table only";
    section.require("apply", only, "false, or remove [kernel]");
    section.read("apply", |value| match value.as_boolean() {
        Some(false) => Ok(()),
        Some(true) => Err(format!("cannot be true: {only}; write apply = false, or remove [kernel]")),
        None => Err(expected("true or false", value, "apply", "false")),
    });
    section.integer("table", 1..=u32::MAX, "", 254);
    section.choice("mode", &[("metric", ()), ("nexthop", ())]);
    section.choice("nexthop_notify_routes", &[("keep", ()), ("off", ())]);
    section.integer("protocol", 1..=255, "", 212);
    section.boolean("backstop", false);
    section.choice("on_exit", &[("keep", ()), ("remove", ())]);
    section.finish();
}
