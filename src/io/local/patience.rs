//! Clients that take nothing of what is there for them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection whose other end must take something, once there is something for it, within this time. Else
/// writing fails: a place is for those who listen.
#[derive(Debug)]
pub(super) struct Impatient<S> {
    stream: S,
    patience: Duration,
    /// Since there is something that it does not take.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    pub(super) const fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waits: None }
    }

    /// What a try to write has come to.
    fn judge(&mut self, context: &mut Context<'_>, tried: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if tried.is_ready() {
            self.waits = None;
            return tried;
        }
        let patience = self.patience;
        ready!(self.waits.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, tried)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, tried)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn who_takes_nothing_is_hung_up_on_and_who_takes_a_little_is_not() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut ours = Impatient::new(ours, Duration::from_millis(500));
        let much = vec![0; 1 << 20];
        let slow = async {
            let mut left = much.len();
            while left > 0 {
                sleep(Duration::from_millis(20)).await;
                left -= theirs.read(&mut vec![0; 64 << 10]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&much), slow);
        written.unwrap();
        let stuck = ours.write_all(&much).await.unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
    }
}
