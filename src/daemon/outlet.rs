//! What probes leave by: a raw socket, or a tunnel device of the kernel's that may come and go.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use nix::errno::Errno;

use crate::engine::{Interface, Time};
use crate::io::device::{self, DeviceSender};
use crate::io::netns;
use crate::io::raw::Sender;

/// A missing device is looked for once in this time.
const SEARCH: Duration = Duration::from_secs(1);

pub(super) enum Outlet {
    Raw(Sender),
    Device(Box<Device>),
}

/// A device by its name: another one may bear it later.
pub(super) struct Device {
    name: String,
    /// `None` is the namespace where the daemon runs.
    namespace: Option<File>,
    sender: Option<Box<DeviceSender>>,
    searched: Time,
}

impl Device {
    pub(super) fn new(name: &str, namespace: Option<File>, sender: Option<Box<DeviceSender>>) -> Self {
        Self { name: name.to_owned(), namespace, sender, searched: Time::ZERO }
    }

    fn sender(&mut self, now: Time) -> Option<&DeviceSender> {
        if self.sender.is_none() && now.since(self.searched) >= SEARCH {
            self.searched = now;
            match netns::within(self.namespace.as_ref(), || device::open(&self.name)) {
                Ok(sender) => {
                    tracing::info!(device = self.name, interface = sender.index(), "the device is there");
                    self.sender = Some(Box::new(sender));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(device = self.name, %error, "the device cannot be used"),
            }
        }
        self.sender.as_deref()
    }
}

impl Outlet {
    /// Sends packets, each to its address, and reports those that the kernel did not take by their
    /// place and its reason.
    pub(super) fn send(&mut self, now: Time, packets: &[(IpAddr, &[u8])], mut refused: impl FnMut(usize, Errno)) {
        let device = match self {
            Self::Raw(sender) => return sender.send(packets, refused),
            Self::Device(device) => device,
        };
        let Some(sender) = device.sender(now) else {
            return (0..packets.len()).for_each(|place| refused(place, Errno::ENODEV));
        };
        let mut gone = false;
        sender.send(packets, |place, error| {
            gone |= matches!(error, Errno::ENODEV | Errno::ENXIO);
            refused(place, error);
        });
        if gone {
            tracing::warn!(device = device.name, "the device is gone");
            device.sender = None;
        }
    }

    /// The index of the device by which answers must come: 0 while it is missing, `None` if it is none.
    pub(super) fn interface(&self) -> Option<Interface> {
        match self {
            Self::Raw(_) => None,
            Self::Device(device) => Some(device.sender.as_ref().map_or(0, |sender| sender.index())),
        }
    }
}
