//! Questions to a running daemon.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use super::{Exit, Failure};

/// How long a daemon may take to begin an answer, and to end a short one: it needs milliseconds, but
/// for one that is stopped, or is none.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer may take altogether that is long, or that the daemon has work with: one that stops in the middle
/// of it would be waited for for ever.
const SLOW: Duration = Duration::from_secs(30);

/// Runs something that waits, on a runtime of its own.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Asks and waits for a whole JSON answer.
pub(super) async fn get(socket: &Path, path: &str) -> Result<Value, Failure> {
    in_time(PATIENCE, socket, whole(request(socket, Method::GET, path, Bytes::new()).await?)).await
}

/// Asks for something that may be long, and takes of it what is needed.
pub(super) async fn get_as<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, Failure> {
    slow(SLOW, socket, request(socket, Method::GET, path, Bytes::new())).await
}

/// Asks for a change.
pub(super) async fn post(socket: &Path, path: &str) -> Result<Value, Failure> {
    post_body(socket, path, Bytes::new()).await
}

/// Asks for something that takes the daemon a while.
pub(super) async fn post_slow(socket: &Path, path: &str) -> Result<Value, Failure> {
    slow(SLOW, socket, begin(socket, Method::POST, path, Bytes::new())).await
}

/// Asks for a change that is described in the body.
pub(super) async fn post_body(socket: &Path, path: &str, body: Bytes) -> Result<Value, Failure> {
    in_time(PATIENCE, socket, whole(request(socket, Method::POST, path, body).await?)).await
}

/// Waits for the beginning of an answer and for all of it.
async fn slow<T: DeserializeOwned>(
    limit: Duration,
    socket: &Path,
    head: impl Future<Output = Result<Response<Incoming>, Failure>>,
) -> Result<T, Failure> {
    in_time(limit, socket, async { whole(head.await?).await }).await
}

async fn in_time<T>(
    limit: Duration,
    socket: &Path,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = |_| {
        let (path, seconds) = (socket.display(), limit.as_secs());
        Failure::new(Exit::Unreachable, format!("the daemon on {path} has not answered for {seconds} s"))
    };
    tokio::time::timeout(limit, work).await.map_err(late)?
}

async fn whole<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Failure> {
    let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
    serde_json::from_slice(&body)
        .map_err(|error| Failure::new(Exit::Unreachable, format!("the daemon's answer is no JSON: {error}")))
}

/// Asks, and hands on each line of the answer as it comes.
pub(super) async fn lines(
    socket: &Path,
    path: &str,
    mut to: impl AsyncFnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut body = request(socket, Method::GET, path, Bytes::new()).await?.into_body();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        rest.extend_from_slice(frame.map_err(broken)?.data_ref().map_or(&[][..], |bytes| bytes));
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            to(&rest[..end]).await?;
            rest.drain(..=end);
        }
    }
    Ok(())
}

async fn request(socket: &Path, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, Failure> {
    in_time(PATIENCE, socket, begin(socket, method, path, body)).await
}

async fn begin(socket: &Path, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(|error| unreachable(socket, &error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "adit").body(Full::new(body));
    let request = request.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    if response.status().is_success() { Ok(response) } else { Err(problem(response).await) }
}

/// The daemon's own words for what is wrong (RFC 9457).
async fn problem(response: Response<Incoming>) -> Failure {
    let exit = match response.status() {
        StatusCode::FORBIDDEN => Exit::NotPermitted,
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => Exit::Usage,
        StatusCode::UNPROCESSABLE_ENTITY => Exit::BadInput,
        StatusCode::CONFLICT => Exit::BadNews,
        _ => Exit::Unreachable,
    };
    let status = response.status();
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let detail =
        serde_json::from_slice::<Value>(&body).ok().and_then(|value| value["detail"].as_str().map(str::to_owned));
    Failure::new(exit, detail.unwrap_or_else(|| format!("the daemon answered {status}")))
}

fn unreachable(socket: &Path, error: &io::Error) -> Failure {
    let path = socket.display();
    #[expect(clippy::wildcard_enum_match_arm, reason = "the system's list is open")]
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::new(
            Exit::NotPermitted,
            format!("not permitted to use {path}: be root or a member of the socket's group ([daemon] socket_group)"),
        ),
        _ => Failure::new(
            Exit::Unreachable,
            format!(
                "no adit daemon answers on {path} ({error}); start one with adit run, or name its socket with --socket"
            ),
        ),
    }
}

fn broken(error: hyper::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("the daemon broke off: {error}"))
}

/// A name as a part of a path: everything but letters, digits and `-._~` escaped (RFC 3986
/// section 2.1).
pub(super) fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_that_stops_in_the_middle_of_an_answer_is_called_silent() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = stream.read(&mut [0; 1_024]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"tunnels\": [").unwrap();
            // It stays open for as long as somebody waits.
            asked > 0 && stream.read(&mut [0; 1]).is_ok()
        });
        let head = request(&socket, Method::GET, "/v1/tunnels", Bytes::new());
        let failure = block_on(slow::<Value>(Duration::from_secs(2), &socket, head)).unwrap_err();
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.message.ends_with("has not answered for 2 s"), "{}", failure.message);
        assert!(daemon.join().unwrap());
    }
}
