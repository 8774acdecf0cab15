//! The configuration's manual, made from [`mod@reference`]: the page adit.toml(5), and `docs/configuration.md`.

use std::fmt::Write;

use roff::{Inline, Roff, bold, roman};

use crate::config::reference::{self, Key, Table, Usual};

const DAEMON: &str = "The file of `adit run`, in TOML: `/etc/adit/adit.toml`, unless `--config` says otherwise. The files \
`conf.d/*.toml` beside a file of the name `adit.toml` are read after it, in the order of their names; tables are merged key by \
key, the later value wins, and lists of tables (tunnels, routes, rules, endpoints, notifications) are added. Paths that do not begin with `/` begin at the folder of \
their file. Times have a unit (`\"250ms\"`, `\"1m 30s\"`). A key that is not known is refused, with its place and the one that \
is nearest.";
const ASIDE: &str = "`adit check` says all that is wrong with it, `adit check --effective` prints it with every default filled \
in, and `adit reload` has the daemon take it up.";
const REFLECT: &str = "The configuration of `adit reflect` has `[defaults]`, `[[tunnel]]` and what is below them as above, \
written from its side, and besides:";

/// The reference in Markdown: `docs/configuration.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = format!(
        "# Configuration reference\n\nEvery key that there is. This page and the manual page adit.toml(5) are made from one table in \
         the code\n(`ADIT_WRITE_DOCS=1 cargo test --test reference` writes it), which a test compares with what the parser \
         takes.\n\n{DAEMON}\n\n{ASIDE}\n"
    );
    reference::tables().iter().for_each(|table| section(table, &mut text));
    let _ = write!(text, "\n# Of a far end\n\n{REFLECT}\n");
    reference::reflect_tables().iter().for_each(|table| section(table, &mut text));
    text
}

fn section(table: &Table, text: &mut String) {
    let titles: Vec<_> = table.titles.iter().map(|title| format!("`{title}`")).collect();
    let _ = write!(text, "\n## {}\n\n{}\n", titles.join(", "), table.about);
    if table.keys.is_empty() {
        return;
    }
    *text += "\n| key | takes | if nothing is said | means |\n| --- | --- | --- | --- |\n";
    for Key { name, takes, usual, means } in &table.keys {
        let _ = writeln!(text, "| `{name}` | {takes} | {} | {means} |", words(usual));
    }
}

fn words(usual: &Usual) -> String {
    match usual {
        Usual::Value(value) => format!("`{value}`"),
        Usual::Else(words) => (*words).to_owned(),
        Usual::Needed => "must be written".to_owned(),
    }
}

/// The page adit.toml(5).
#[must_use]
pub fn page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["adit.toml", "5", "", concat!("adit ", env!("CARGO_PKG_VERSION")), ""]);
    page.control("SH", ["NAME"]).text([roman("adit.toml - configuration of adit")]);
    page.control("SH", ["DESCRIPTION"]).text(spans(DAEMON));
    page.control("PP", []).text(spans(ASIDE));
    reference::tables().iter().for_each(|table| heading(table, &mut page));
    page.control("SH", ["OF A FAR END"]).text(spans(REFLECT));
    reference::reflect_tables().iter().for_each(|table| heading(table, &mut page));
    page.control("SH", ["SEE ALSO"]).text([bold("adit"), roman("(1), "), bold("adit-check"), roman("(1)")]);
    page.to_roff()
}

fn heading(table: &Table, page: &mut Roff) {
    page.control("SS", [table.titles.join(", ").as_str()]).text(spans(table.about));
    for Key { name, takes, usual, means } in &table.keys {
        let mut first = vec![bold(*name), roman(": ")];
        first.extend(spans(takes));
        page.control("TP", []).text(first).text(spans(&format!("{means} {}", remark(usual))));
    }
}

fn remark(usual: &Usual) -> String {
    match usual {
        Usual::Value(value) => format!("If nothing is said: `{value}`."),
        Usual::Else(words) => format!("If nothing is said: {words}."),
        Usual::Needed => "Must be written.".to_owned(),
    }
}

/// What stands between back quotes is bold.
fn spans(text: &str) -> Vec<Inline> {
    let pieces = text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty());
    pieces.map(|(index, piece)| if index % 2 == 1 { bold(piece) } else { roman(piece) }).collect()
}
