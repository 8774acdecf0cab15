//! What the plan wants to be open in one network namespace, and opening it.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::kernel::Inspected;
use super::plan::Exit;
use crate::config::Netns;
use crate::engine::Egress;
use crate::io::device::{self, DeviceSender};
use crate::io::raw::{self, Leaving, Opened, Sender};
use crate::io::{netns, xfrm};
use crate::wire::Family;
use crate::wire::filter::{Pass, Protocol};

/// What is wanted in one namespace.
pub(super) struct Space {
    /// `None` is the namespace where the daemon runs.
    pub(super) name: Option<Netns>,
    pub(super) receivers: Vec<(Family, Protocol)>,
    pub(super) exits: Vec<(Egress, Exit)>,
    /// There are ESP tunnels: the kernel's associations are watched.
    pub(super) has_esp: bool,
    /// Tunnels whose probes a device might withhold.
    pub(super) inspected: Vec<Inspected>,
    /// What is opened is for another process.
    pub(super) to_hand: bool,
    /// Of the probes whose answers may come in.
    pub(super) epoch: u64,
}

/// An open way out.
pub(super) enum Way {
    /// Shared with whoever looks that it stays bound to its device.
    Raw(Arc<Sender>),
    Device(Box<DeviceSender>),
}

/// What is open in one namespace.
pub(super) struct Open {
    pub(super) receivers: Vec<Opened>,
    /// By the place among the new exits. One that has a device may be missing.
    pub(super) ways: Vec<io::Result<Way>>,
    /// The kernel's associations, where there are ESP tunnels and it can be asked for them.
    pub(super) watch: Option<xfrm::Opened>,
}

impl Space {
    /// Whether anything is wanted in it.
    pub(super) const fn is_wanted(&self) -> bool {
        !self.receivers.is_empty()
    }

    /// What people call it.
    pub(super) fn title(&self) -> String {
        self.name.as_ref().map_or_else(|| "the network namespace of adit".to_owned(), title)
    }

    /// What people call an exit.
    pub(super) fn title_of(&self, exit: &Exit) -> String {
        let title = match exit {
            Exit::Device(device) => format!("device {device}"),
            Exit::Raw(Leaving { device: Some(device), .. }) => format!("underlay_device {device}"),
            Exit::Raw(Leaving { device: None, .. }) => "a raw socket".to_owned(),
            Exit::Plain(_) => "a socket of ICMP".to_owned(),
        };
        self.name.as_ref().map_or_else(|| title.clone(), |name| format!("{title} in {}", self::title(name)))
    }

    /// Why an exit is not open.
    pub(super) fn lack(&self, exit: &Exit, error: &io::Error) -> String {
        let title = self.title_of(exit);
        match error.kind() == io::ErrorKind::NotFound {
            true => format!("{title} is missing"),
            false => format!("{title} cannot be used: {error}"),
        }
    }

    /// Opens everything in the namespace that `file` stands for, so far as it was not wanted there `before`.
    ///
    /// # Errors
    /// What the kernel refused, but for a device.
    pub(super) fn open(&self, before: Option<&Self>, file: Option<&File>) -> io::Result<Open> {
        let is_new = |egress| before.is_none_or(|before| before.exits.iter().all(|(known, _)| *known != egress));
        let is_unheard = |kind| before.is_none_or(|before| !before.receivers.contains(kind));
        let pass = Pass::Answers { epoch: self.epoch };
        netns::within(file, || {
            let open = |&(family, protocol): &_| raw::open_receiver(family, protocol, pass);
            let receivers = self.receivers.iter().filter(|kind| is_unheard(kind));
            let receivers = receivers.map(open).collect::<io::Result<_>>()?;
            let exits = self.exits.iter().filter(|(egress, _)| is_new(*egress));
            let ways = exits.map(|(_, exit)| match open_exit(exit, self.to_hand) {
                Err(error) if !exit.has_device() => Err(error),
                way => Ok(way),
            });
            let ways = ways.collect::<io::Result<_>>()?;
            let is_watched = before.is_some_and(|before| before.has_esp);
            let watch = (self.has_esp && !is_watched).then(xfrm::follow::open_or_warn).flatten();
            Ok(Open { receivers, ways, watch })
        })
    }

    /// Makes sure that everything could be opened in a namespace that is not there yet.
    ///
    /// # Errors
    /// `PermissionDenied` for want of a capability.
    pub(super) fn rehearse(&self) -> io::Result<()> {
        let leaving = Leaving { family: Family::V4, device: None, mark: 0, source: None };
        let here = netns::here()?;
        let sender = netns::within(Some(&here), || raw::open_sender(&leaving));
        sender.map(drop).map_err(|error| self.explained(error))
    }

    /// An error with the namespace that it is about.
    pub(super) fn explained(&self, error: io::Error) -> io::Error {
        match &self.name {
            Some(name) => io::Error::new(error.kind(), format!("{}: {error}", title(name))),
            None => error,
        }
    }
}

fn title(name: &Netns) -> String {
    format!("network namespace {name}")
}

/// Opens a way out, in the namespace of the calling thread.
///
/// # Errors
/// `NotFound` if its device is missing.
pub(super) fn open_exit(exit: &Exit, to_hand: bool) -> io::Result<Way> {
    Ok(match exit {
        Exit::Raw(leaving) => Way::Raw(Arc::new(raw::open_sender(leaving)?)),
        Exit::Plain(leaving) => Way::Raw(Arc::new(raw::open_plain_sender(leaving)?)),
        Exit::Device(name) => Way::Device(Box::new(device::open(name, to_hand)?)),
    })
}

impl Exit {
    /// Whether there is a device that may be missing.
    pub(super) const fn has_device(&self) -> bool {
        match self {
            Self::Device(_) => true,
            Self::Raw(leaving) | Self::Plain(leaving) => leaving.device.is_some(),
        }
    }
}
