//! What the configuration knows and this version does not do: refused, never ignored.

use super::section::Section;

const NOT_YET: &str = "is not supported by this version yet; remove it";

/// Sections of later versions.
pub(super) fn sections(root: &mut Section<'_>) {
    root.refuse("notify", NOT_YET);
}

/// Keys of `[daemon]` of later versions.
pub(super) fn daemon(section: &mut Section<'_>) {
    section.refuse("metrics", NOT_YET);
}
