//! The other end of the local socket, for a part of the daemon that follows the events.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// How long an answer may take to begin.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take altogether, unless it goes on for as long as there is something to say.
const WHOLE: Duration = Duration::from_secs(20);
/// The longest line. An event has some kB at most.
const LINE: usize = 1 << 20;

/// Asks for a path, and waits for the whole answer.
///
/// # Errors
/// Nobody answers, or not in time.
pub async fn get(socket: &Path, path: &str) -> io::Result<Bytes> {
    let whole = async { Ok(ask(socket, path).await?.collect().await.map_err(io::Error::other)?.to_bytes()) };
    tokio::time::timeout(WHOLE, whole).await?
}

/// An answer that comes line by line.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    /// What has come.
    buffer: Vec<u8>,
    /// How much of that has been handed on.
    taken: usize,
}

/// Asks for a path whose answer is lines.
///
/// # Errors
/// Nobody answers, or not in time.
pub async fn lines(socket: &Path, path: &str) -> io::Result<Lines> {
    Ok(Lines { body: ask(socket, path).await?, buffer: Vec::new(), taken: 0 })
}

impl Lines {
    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// The answer broke off.
    pub async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut searched = self.taken;
        let end = loop {
            if let Some(end) = self.buffer[searched..].iter().position(|&byte| byte == b'\n') {
                break searched + end;
            }
            self.buffer.drain(..std::mem::take(&mut self.taken));
            searched = self.buffer.len();
            if searched > LINE {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            self.buffer.extend_from_slice(frame.map_err(io::Error::other)?.data_ref().map_or(&[][..], |bytes| bytes));
        };
        let begin = std::mem::replace(&mut self.taken, end + 1);
        Ok(Some(&self.buffer[begin..end]))
    }
}

async fn ask(socket: &Path, path: &str) -> io::Result<Incoming> {
    let ask = async {
        let stream = UnixStream::connect(socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // It ends with the answer.
        tokio::spawn(connection);
        let request =
            Request::get(path).header("host", "adit").body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        if status.is_success() {
            Ok(answer.into_body())
        } else {
            Err(io::Error::other(format!("the answer is {status}")))
        }
    };
    tokio::time::timeout(PATIENCE, ask).await?
}
