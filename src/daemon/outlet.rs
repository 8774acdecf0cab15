//! What probes leave by: a raw socket, or a tunnel device of the kernel's. What has a device may be
//! missing, and come later.

use std::net::IpAddr;

use nix::errno::Errno;

use super::space::Way;
use crate::engine::{Interface, Namespace, Unsent};

pub(super) struct Outlet {
    /// What people call it.
    title: String,
    namespace: Namespace,
    /// Answers must come by the same device.
    is_device: bool,
    way: Option<Way>,
}

/// Why a probe did not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is nothing to leave by.
    Missing,
    /// Nor is there from now on: the device is gone.
    Gone,
    /// What the kernel said.
    Kernel(Errno),
}

impl Refusal {
    /// Whether it says something about the tunnel (traffic could not have left either), or only about this
    /// host at this moment. What is not known to be the former is the latter.
    pub(super) fn unsent(self) -> Unsent {
        let error = match self {
            Self::Missing | Self::Gone => return Unsent::Missing,
            Self::Kernel(error) => error,
        };
        #[expect(clippy::wildcard_enum_match_arm, reason = "the system's list is open")]
        match error {
            Errno::ENETUNREACH
            | Errno::EHOSTUNREACH
            | Errno::ENETDOWN
            | Errno::EADDRNOTAVAIL
            | Errno::EPERM
            | Errno::EACCES
            | Errno::ENODEV
            | Errno::ENXIO
            // WireGuard: no peer may have this destination; the peer's endpoint is not known.
            | Errno::ENOKEY
            | Errno::EDESTADDRREQ
            | Errno::EMSGSIZE => Unsent::Refused(error.desc()),
            _ => Unsent::LocalFault(error.desc()),
        }
    }
}

impl Outlet {
    pub(super) const fn new(title: String, namespace: Namespace, is_device: bool) -> Self {
        Self { title, namespace, is_device, way: None }
    }

    /// One that nobody leaves by.
    pub(super) const fn unused() -> Self {
        Self::new(String::new(), Namespace::MAX, false)
    }

    /// Whether anybody is to leave by it.
    pub(super) const fn is_wanted(&self) -> bool {
        self.namespace != Namespace::MAX
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) const fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Leads packets another way, or none, from now on; gives the old one.
    pub(super) const fn lead(&mut self, way: Option<Way>) -> Option<Way> {
        std::mem::replace(&mut self.way, way)
    }

    /// Sends packets, each to its address, and reports those that did not leave by their place and the
    /// reason.
    pub(super) fn send(&self, packets: &[(IpAddr, &[u8])], mut refused: impl FnMut(usize, Refusal)) {
        match &self.way {
            None => (0..packets.len()).for_each(|place| refused(place, Refusal::Missing)),
            Some(Way::Raw(sender)) => sender.send(packets, |place, error| {
                let is_gone = error == Errno::ENODEV && sender.has_device();
                refused(place, if is_gone { Refusal::Gone } else { Refusal::Kernel(error) });
            }),
            Some(Way::Device(sender)) => sender.send(packets, |place, error| {
                let is_gone = matches!(error, Errno::ENODEV | Errno::ENXIO);
                refused(place, if is_gone { Refusal::Gone } else { Refusal::Kernel(error) });
            }),
        }
    }

    /// The index of the device by which answers must come: 0 while it is missing, `None` if it is none.
    pub(super) fn interface(&self) -> Option<Interface> {
        self.is_device.then(|| match &self.way {
            Some(Way::Device(sender)) => sender.index(),
            Some(Way::Raw(_)) | None => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::diagnose::TOO_LONG;

    #[test]
    fn that_a_packet_is_too_long_is_said_in_the_words_that_a_diagnosis_knows() {
        assert_eq!(Refusal::Kernel(Errno::EMSGSIZE).unsent(), Unsent::Refused(TOO_LONG));
    }
}
