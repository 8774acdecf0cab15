//! The two formats of what is measured: OpenMetrics 1.0, and the text of Prometheus before it (0.0.4) for who asks
//! for that. The second is made of the first, piece by piece as the client takes it.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

/// Bytes of a piece of the older text.
const PIECE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Plain,
}

impl Format {
    /// What a text of this kind calls itself.
    const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Its type, the group of types that it is of, and its version.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::OpenMetrics => ["application/openmetrics-text", "application/*", "1.0.0"],
            Self::Plain => ["text/plain", "text/*", "0.0.4"],
        }
    }

    /// An answer of a text of OpenMetrics.
    pub(super) fn answer(self, text: Bytes) -> Response {
        let body = match self {
            Self::OpenMetrics => Body::from(text),
            Self::Plain => Body::from_stream(stream::iter(Plain { text, at: 0 }.map(Ok::<_, Infallible>))),
        };
        ([(header::CONTENT_TYPE, self.media_type()), (header::VARY, "accept")], body).into_response()
    }
}

/// What a client asks for (RFC 9110 section 12.5.1); OpenMetrics, if either will do, or nothing that there is. But
/// a browser would store that in a file instead of showing it.
pub(super) fn wanted(headers: &HeaderMap) -> Format {
    let values = headers.get_all(header::ACCEPT);
    let ranges: Vec<Range<'_>> =
        values.iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')).map(Range::of).collect();
    let [open, plain] = [Format::OpenMetrics, Format::Plain].map(|format| liking(&ranges, format));
    let is_browser = ranges.iter().any(|range| range.media == "text/html");
    if plain > open || plain == open && is_browser { Format::Plain } else { Format::OpenMetrics }
}

/// How much a format is liked, in thousandths: by the range that speaks of it most closely.
fn liking(ranges: &[Range<'_>], format: Format) -> u32 {
    let fits = ranges.iter().filter_map(|range| Some((range.closeness(format)?, range.quality)));
    fits.max().map_or(0, |(_, quality)| quality)
}

/// One of the ranges of a client's wishes.
struct Range<'a> {
    media: String,
    version: Option<&'a str>,
    quality: u32,
}

impl<'a> Range<'a> {
    fn of(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut version, mut quality) = (None, 1_000);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => version = Some(value),
                "q" => quality = thousandths(value),
                _ => {}
            }
        }
        Self { media, version, quality }
    }

    /// How closely it speaks of a format; `None` if it does not.
    fn closeness(&self, format: Format) -> Option<u8> {
        let [media, group, version] = format.names();
        match self.version {
            Some(wanted) if self.media == media => (wanted == version).then_some(3),
            None if self.media == media => Some(2),
            Some(_) | None if self.media == group => Some(1),
            Some(_) | None => (self.media == "*/*").then_some(0),
        }
    }
}

/// A quality (RFC 9110 section 12.4.2); what is none says nothing against it.
fn thousandths(text: &str) -> u32 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = part.bytes().chain(std::iter::repeat(b'0')).take(3);
    let part = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit.saturating_sub(b'0').min(9)));
    if whole == "0" { part } else { 1_000 }
}

/// A text of OpenMetrics on its way to being the older one.
struct Plain {
    text: Bytes,
    at: usize,
}

impl Iterator for Plain {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = Vec::with_capacity(PIECE + 1_024);
        while piece.len() < PIECE && self.at < self.text.len() {
            let rest = &self.text[self.at..];
            let length = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |end| end + 1);
            let (line, after) = rest.split_at(length);
            convert(line, after, &mut piece);
            self.at += length;
        }
        (!piece.is_empty()).then(|| piece.into())
    }
}

/// Adds a line as the older text has it: there a family bears the name of its samples. `after` follows it.
fn convert(line: &[u8], after: &[u8], into: &mut Vec<u8>) {
    let Some(comment) = line.strip_prefix(b"# ") else { return into.extend(line) };
    let mut words = comment.splitn(3, |&byte| byte == b' ');
    let (keyword, name, rest) = (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let kind = match keyword {
        Some(b"TYPE") => rest.trim_ascii_end(),
        // Its type is in the next line.
        Some(b"HELP") => after
            .split(|&byte| byte == b'\n')
            .next()
            .and_then(|line| line.rsplit(|&byte| byte == b' ').next())
            .unwrap_or_default(),
        // Units, and the end: it knows of neither.
        _ => return,
    };
    let suffix: &[u8] = match kind {
        b"counter" => b"_total",
        b"info" => b"_info",
        _ => b"",
    };
    let rest = if keyword == Some(b"TYPE") && kind == b"info" { b"gauge\n" } else { rest };
    let head = [b"# ".as_slice(), keyword.unwrap_or_default(), b" ", name, suffix, b" ", rest];
    head.into_iter().for_each(|part| into.extend(part));
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn asked(wishes: &[&str]) -> Format {
        let mut headers = HeaderMap::new();
        for wish in wishes {
            headers.append(header::ACCEPT, HeaderValue::from_str(wish).unwrap());
        }
        wanted(&headers)
    }

    #[test]
    fn who_wants_the_older_text_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for wishes in [
            &[][..],
            &["*/*"],
            &[""],
            &["application/json"],
            &[prometheus],
            &["application/openmetrics-text"],
            &["text/plain;q=0.3", "application/openmetrics-text; version=1.0.0; q=0.4"],
            &["application/*, text/*;q=0.9"],
            &["text/plain;version=1.0.0"],
            &["text/plain;q=0"],
            &[";;q=,,version"],
        ] {
            assert_eq!(asked(wishes), Format::OpenMetrics, "{wishes:?}");
        }
        for wishes in [
            &["text/plain"][..],
            &["TEXT/PLAIN; Version=0.0.4; charset=utf-8"],
            &["text/plain;version=0.0.4;q=1,*/*;q=0.1"],
            &["application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"],
            &["application/openmetrics-text;q=0, */*"],
            &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
            &["application/openmetrics-text;q=0.499", "text/*;q=0.5"],
        ] {
            assert_eq!(asked(wishes), Format::Plain, "{wishes:?}");
        }
    }

    const OPEN: &str = "# HELP adit_x Some \\\\ help.\n# TYPE adit_x counter\nadit_x_total{a=\"# TYPE b c\"} 3\n\
                        # HELP adit_rtt_seconds Times\n# TYPE adit_rtt_seconds histogram\n# UNIT adit_rtt_seconds seconds\n\
                        adit_rtt_seconds_bucket{le=\"+Inf\"} 1\n# HELP adit_build The program\n# TYPE adit_build info\n\
                        adit_build_info{version=\"1\"} 1\n# EOF\n";
    const OLDER: &str = "# HELP adit_x_total Some \\\\ help.\n# TYPE adit_x_total counter\nadit_x_total{a=\"# TYPE b c\"} 3\n\
                         # HELP adit_rtt_seconds Times\n# TYPE adit_rtt_seconds histogram\n\
                         adit_rtt_seconds_bucket{le=\"+Inf\"} 1\n# HELP adit_build_info The program\n\
                         # TYPE adit_build_info gauge\nadit_build_info{version=\"1\"} 1\n";

    fn older(text: &str) -> String {
        let pieces = Plain { text: text.to_owned().into(), at: 0 };
        pieces.map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_older_text_says_the_same() {
        assert_eq!(older(OPEN), OLDER);
        for cut in 0..OPEN.len() {
            // No text of ours ends so; none is to end a thread.
            let _ = older(&OPEN[..cut]);
        }
    }

    #[test]
    fn a_long_text_comes_in_pieces() {
        let text = OPEN.trim_end_matches("# EOF\n").repeat(2_000);
        let pieces: Vec<_> = Plain { text: text.clone().into(), at: 0 }.collect();
        assert!(pieces.len() > 3 && pieces.iter().all(|piece| piece.len() < PIECE + 1_024));
        assert_eq!(older(&text), OLDER.repeat(2_000));
    }
}
