//! What the service manager is told (`sd_notify(3)`). Where there is none, nothing happens; that it cannot
//! be told something is no reason for a daemon to end.

use sd_notify::NotifyState;

/// The daemon has begun to do what it is for.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// How it goes, in one line for people.
pub fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// It goes on, which its watchdog wants to know. Only for whoever has seen that it does.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The configuration is being read again; [`ready`] follows, whatever has come of it.
pub fn reloading() {
    // Both in one message (sd_notify(3), RELOADING=1). Without the time, newer managers wait in vain.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The end has begun.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}
