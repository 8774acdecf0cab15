//! The listener of TCP at which the metrics are served: opened here, served by the prober.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::life::Life;
use crate::config;
use crate::daemon::link::{Parcel, Word};
use crate::engine::Time;
use crate::io::local::listen;

/// An address that cannot be had is tried again so often.
const AGAIN: Duration = Duration::from_secs(10);

/// What is to be open, and what is.
pub(super) struct Front {
    address: Option<SocketAddr>,
    page: bool,
    socket: Option<OwnedFd>,
    /// When to try again.
    next: Time,
    /// Why it could not be had, as it was told last.
    told: Option<String>,
}

impl Front {
    /// Opens what the configuration asks for, now or later: nobody's probing waits for a port.
    pub(super) fn new(settings: &config::Daemon, now: Time) -> Self {
        let mut front =
            Self { address: settings.metrics, page: settings.status_page, socket: None, next: now, told: None };
        front.look(now);
        front
    }

    /// Has what another configuration asks for.
    pub(super) fn renew(&mut self, settings: &config::Daemon, now: Time) {
        self.page = settings.status_page;
        if self.address != settings.metrics {
            self.address = settings.metrics;
            self.socket = None;
        }
        // Whoever reloads may have made room.
        (self.next, self.told) = (now, None);
        self.look(now);
    }

    /// Tries to open what is not open yet, if it is time for that. Whether it is open now and was not.
    pub(super) fn look(&mut self, now: Time) -> bool {
        let Some(address) = self.address.filter(|_| self.socket.is_none() && now >= self.next) else { return false };
        self.next = now + AGAIN;
        match listen(address) {
            Ok(socket) => {
                tracing::info!(%address, status_page = self.page, "serving the metrics");
                (self.socket, self.told) = (Some(socket), None);
                true
            }
            Err(error) => {
                let why = why(&error);
                if self.told.as_ref() != Some(&why) {
                    tracing::error!(
                        "the metrics cannot be served at {address}: {why}; it is tried again every {} s",
                        AGAIN.as_secs()
                    );
                    self.told = Some(why);
                }
                false
            }
        }
    }

    /// Hands over what is open, or says that nothing is.
    pub(super) fn tell(&self, life: &Life) {
        let socket = self.socket.as_ref().map(OwnedFd::try_clone).transpose();
        let socket = socket.inspect_err(|error| tracing::error!(%error, "the listener cannot be handed over"));
        let socket = socket.ok().flatten();
        let door = self.address.filter(|_| socket.is_some()).map(|address| (address, self.page));
        life.outward.say(Parcel::with(Word::Door(door), socket.into_iter().collect()));
    }
}

/// What to do about a failure.
const REMEDIES: [(io::ErrorKind, &str); 3] = [
    (io::ErrorKind::AddrInUse, "another program has this port: see ss -ltnp, or name another one in [daemon] metrics"),
    (io::ErrorKind::AddrNotAvailable, "no device has this address, so far"),
    (io::ErrorKind::PermissionDenied, "ports below 1024 need CAP_NET_BIND_SERVICE"),
];

fn why(error: &io::Error) -> String {
    let remedy = REMEDIES.iter().find(|(kind, _)| *kind == error.kind());
    remedy.map_or_else(|| error.to_string(), |(_, remedy)| format!("{error}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(metrics: Option<SocketAddr>) -> config::Daemon {
        config::Daemon { metrics, ..config::Daemon::default() }
    }

    #[test]
    fn a_port_that_is_taken_is_tried_again_every_ten_seconds() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut front = Front::new(&settings(Some(address)), at(0));
        assert!(front.socket.is_none() && front.told.as_ref().unwrap().contains("another program has this port"));
        assert!(!front.look(at(10)));
        drop(taken);
        assert!(!front.look(at(19)), "not before its time");
        assert!(front.look(at(20)));
        assert!(!front.look(at(40)), "it is open already");
        front.renew(&settings(Some(address)), at(41));
        assert!(front.socket.is_some(), "the same one stays open");
        front.renew(&settings(None), at(42));
        assert!(front.socket.is_none());
    }
}
