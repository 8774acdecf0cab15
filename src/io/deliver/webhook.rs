//! A webhook: one POST, over a connection of its own.
//!
//! A redirect is not followed: a message, and the headers that stand for its sender, go where the configuration says.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Error};

use super::{HEARD, Report, said};
use crate::notice::Headers;

const AGENT: &str = concat!("adit/", env!("CARGO_PKG_VERSION"));

/// Asks it, on a thread that may wait.
pub(super) async fn post(url: String, headers: Option<Headers>, body: String, timeout: Duration) -> Report {
    let asking = tokio::task::spawn_blocking(move || ask(&url, headers.as_ref(), &body, timeout));
    asking.await.unwrap_or_else(|error| Report::failed(format!("a fault of adit's own: {error}")))
}

fn ask(url: &str, headers: Option<&Headers>, body: &str, timeout: Duration) -> Report {
    let tls = TlsConfig::builder()
        // The system's certificates, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent(AGENT)
        .tls_config(tls)
        .build();
    let mut request = Agent::from(config).post(url).header("content-type", "application/json");
    for (name, value) in headers.into_iter().flat_map(Headers::iter) {
        request = request.header(name, value);
    }
    match request.send(body) {
        Ok(mut answer) => {
            let status = answer.status();
            let heard = answer.body_mut().with_config().limit(HEARD as u64).read_to_vec();
            let said = heard.map(|bytes| said(&bytes)).unwrap_or_default();
            let words = if said.is_empty() { format!("{status}") } else { format!("{status}: {said}") };
            match status.as_u16() {
                200..=299 => Report::told(words),
                300..=399 => Report::failed(format!("{words}; a redirect is not followed")),
                // Later it may be another answer (RFC 9110 section 15.5.9, RFC 6585 section 4).
                408 | 425 | 429 | 500..=599 => Report::again(words),
                _ => Report::failed(words),
            }
        }
        Err(error) => refusal(&error),
    }
}

/// Why there is no answer. No error's text that could hold the URL.
fn refusal(error: &Error) -> Report {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library's list is open")]
    match error {
        Error::Timeout(_) => Report::again("no answer in time"),
        // What is wrong with a certificate comes this way, too, and will be so the next time.
        Error::Io(error) if error.kind() == ErrorKind::InvalidData => {
            Report::failed(format!("no trust: {}", said(error.to_string().as_bytes())))
        }
        Error::Io(error) => Report::again(said(error.to_string().as_bytes())),
        Error::HostNotFound => Report::again("its host has no address"),
        Error::ConnectionFailed => Report::again("it cannot be connected to"),
        Error::Tls(why) => Report::failed(format!("no trust: {why}")),
        Error::Rustls(why) => Report::failed(format!("no trust: {why}")),
        Error::BadUri(_) => Report::failed("its URL cannot be used"),
        _ => Report::failed("what answers there does not speak HTTP as it should"),
    }
}
