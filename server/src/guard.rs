//! Time limits of a connection, at the socket, where they hold for both versions of HTTP and for clients that have not
//! yet said which one they speak.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A stream that fails when its client lets it wait too long: until the first request is there, counted from the
/// start, and from then on without any byte read or written.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    stream: S,
    greeted: Arc<AtomicBool>,
    first_request_by: Instant,
    last_progress: Instant,
    idle: Duration,
    alarm: Pin<Box<Sleep>>,
}

impl<S> Guarded<S> {
    /// `greeted` is to be set when the head of the first request is complete.
    pub(crate) fn new(stream: S, greeted: Arc<AtomicBool>, head: Duration, idle: Duration) -> Self {
        let now = Instant::now();
        let first_request_by = now + head;
        Self {
            stream,
            greeted,
            first_request_by,
            last_progress: now,
            idle,
            alarm: Box::pin(sleep_until(first_request_by)),
        }
    }

    /// Ready with an error when the time is up; else the task is woken when it is.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let deadline = if self.greeted.load(Ordering::Relaxed) {
            self.last_progress + self.idle
        } else {
            self.first_request_by
        };
        // Progress puts the deadline off all the time; the alarm follows only when it has gone off.
        if deadline < self.alarm.deadline() {
            self.alarm.as_mut().reset(deadline);
        }
        loop {
            ready!(self.alarm.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.alarm.as_mut().reset(deadline);
        }
    }

    /// Notes progress, or else looks at the time.
    fn judge<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Ok(value)) => {
                self.last_progress = Instant::now();
                Poll::Ready(Ok(value))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_alarm(cx).map(Err),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.judge(polled, cx)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.judge(polled, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.judge(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
