//! What a browser must not be talked into, by a page of somebody else's.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{StatusCode, Version};
use axum::response::{IntoResponse, Response};
use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};

use super::api::Problem;

/// Whether a request is meant for a listener on a loopback address. A name in the "host" field that is not this
/// host's leads here by DNS rebinding: a page of somebody else's, whose name suddenly has this address, could read
/// what is served here.
pub(super) fn check(request: &Request) -> Result<(), Box<Response>> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (request.uri().authority(), hosts.next(), hosts.next()) {
        // As a proxy is asked; what it says goes before the field (RFC 9112 section 3.2.2).
        (Some(authority), ..) => authority.as_str(),
        (None, Some(host), None) => host.to_str().unwrap_or_default(),
        // From before there was such a field: no browser.
        (None, None, None) if request.version() == Version::HTTP_10 => return Ok(()),
        (None, ..) => {
            return refuse(StatusCode::BAD_REQUEST, "a request has one field \"host\" (RFC 9112 section 3.2)");
        }
    };
    if is_local(host) {
        return Ok(());
    }
    let why = "this listener is for this host alone, and is asked as localhost or by an IP address, not by another name; \
               a proxy before it must set the field \"host\" to localhost";
    refuse(StatusCode::MISDIRECTED_REQUEST, why)
}

fn refuse(status: StatusCode, why: &str) -> Result<(), Box<Response>> {
    Err(Box::new(Problem::new(status, why).into_response()))
}

/// Whether this is an IP address or a name that is always this host's (RFC 6761 section 6.3), with a port or without.
fn is_local(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| {
            address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) && is_port(port)
        });
    }
    let name = host.split(':').next().unwrap_or_default();
    let bare = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_own = bare == "localhost" || bare.ends_with(".localhost") || name.parse::<IpAddr>().is_ok();
    is_own && is_port(&host[name.len()..])
}

/// Nothing, or a colon with a number or nothing.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Says to the browser what an answer may be used for.
pub(super) fn label(mut response: Response) -> Response {
    let fields: [(HeaderName, &'static str); 4] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let headers = response.headers_mut();
    for (name, value) in fields {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NOTHING));
    response
}

/// What is not the page shows nothing, runs nothing and fetches nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// What a page may do that has one script and one style sheet: these two and no others run, by their hashes, and
/// nothing is fetched but from where the page is from.
pub(super) fn policy(page: &str) -> String {
    let hash = |tag: &str| {
        let text = page.split_once(&format!("<{tag}>")).and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")));
        let text = text.map_or("", |(text, _)| text);
        // 32 bytes are 44 digits.
        let mut digits = [0; 44];
        format!("'sha256-{}'", Base64::encode(&Sha256::digest(text), &mut digits).unwrap_or_default())
    };
    let (script, style) = (hash("script"), hash("style"));
    format!(
        "default-src 'none'; script-src {script}; style-src {style}; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn names_of_this_host_are_known() {
        for host in [
            "localhost",
            "localhost:9911",
            "LOCALHOST",
            "localhost.",
            "adit.localhost:80",
            "127.0.0.1",
            "127.0.0.1:9911",
            "192.0.2.1:9911",
            "[::1]",
            "[::1]:9911",
            "[2001:db8::1]:9911",
            "localhost:",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            ":",
            ":9911",
            "evil.example",
            "evil.example:9911",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.localhost.example",
            "notlocalhost",
            "127.0.0.1@evil.example",
            "127.0.0.1:9911@evil.example",
            "[::1].evil.example",
            "[::1",
            "::1",
            "[evil.example]",
            "[127.0.0.1]",
            "localhost:80:80",
            "localhost..",
            "2130706433",
            "localhost:a",
            "0x7f.1",
            "ä",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    fn request(uri: &str, version: Version, hosts: &[&str]) -> Request {
        let mut request = Request::builder().uri(uri).version(version);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn a_request_is_meant_for_us_or_is_refused() {
        let status = |request: &Request| check(request).err().map(|response| response.status().as_u16());
        let new = Version::HTTP_11;
        assert_eq!(status(&request("/", new, &["localhost:9911"])), None);
        assert_eq!(status(&request("/", new, &["evil.example"])), Some(421));
        assert_eq!(status(&request("http://evil.example/", new, &["localhost"])), Some(421));
        assert_eq!(status(&request("http://127.0.0.1/", new, &["evil.example"])), None);
        assert_eq!(status(&request("/", new, &["localhost", "evil.example"])), Some(400));
        assert_eq!(status(&request("/", new, &[])), Some(400));
        assert_eq!(status(&request("/", Version::HTTP_10, &[])), None);
    }

    #[test]
    fn the_policy_lets_this_script_run_and_no_other() {
        let policy = policy("<style>a</style><script>alert(1)</script>");
        // printf 'alert(1)' | openssl dgst -sha256 -binary | base64
        assert!(policy.contains("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"), "{policy}");
        assert!(!policy.contains("inline") && !policy.contains("eval"), "{policy}");
    }
}
