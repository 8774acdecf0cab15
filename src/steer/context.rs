//! What all prefixes of a namespace have in common: verdicts and devices.

use std::collections::BTreeMap;

use super::{Link, Mode};

/// A device by its name, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    /// 0 if there is none of this name.
    pub(super) index: u32,
    pub(super) up: bool,
}

/// What the routes of every prefix depend on.
#[derive(Debug, Clone)]
pub(super) struct Context {
    /// What is used, which may be less than what is asked for.
    pub(super) mode: Mode,
    pub(super) backstop: bool,
    /// What each tunnel's state costs; `None` before its first verdict.
    pub(super) penalties: Vec<Option<u32>>,
    /// Whether it ever had one, be it by a drain that has ended: what was found of it and is in no place of
    /// its own has gone since.
    pub(super) placed: Vec<bool>,
    /// What it cost at most where its routes were found, before that.
    found: Vec<u32>,
    /// Whether all verdicts that are to be waited for are there: what was found and is not confirmed
    /// by now is surplus.
    pub(super) settled: bool,
    /// Everything is to go.
    pub(super) ending: bool,
    /// The devices that routes name.
    pub(super) devices: Vec<Device>,
    names: BTreeMap<String, u32>,
    /// All devices by index: name, and whether it is up.
    links: BTreeMap<u32, (String, bool)>,
}

impl Context {
    pub(super) fn new(mode: Mode, backstop: bool, tunnels: usize) -> Self {
        Self {
            mode,
            backstop,
            penalties: vec![None; tunnels],
            placed: vec![false; tunnels],
            found: vec![0; tunnels],
            settled: false,
            ending: false,
            devices: Vec::new(),
            names: BTreeMap::new(),
            links: BTreeMap::new(),
        }
    }

    /// The index of a device's name.
    pub(super) fn device(&mut self, name: &str) -> u32 {
        if let Some(&at) = self.names.get(name) {
            return at;
        }
        let at = super::number(self.devices.len());
        self.devices.push(Device { name: name.to_owned(), index: 0, up: false });
        self.names.insert(name.to_owned(), at);
        at
    }

    /// Takes the devices as they are now, and says whether one of ours is other than before.
    pub(super) fn see(&mut self, links: &[Link]) -> bool {
        self.links = links.iter().map(|link| (link.index, (link.name.clone(), link.up))).collect();
        let mut now = self.devices.clone();
        now.iter_mut().for_each(|device| (device.index, device.up) = (0, false));
        for link in links {
            if let Some(&at) = self.names.get(&link.name) {
                let device = &mut now[at as usize];
                (device.index, device.up) = (link.index, link.up);
            }
        }
        let changed = now != self.devices;
        self.devices = now;
        changed
    }

    pub(super) fn penalty(&self, tunnel: u32) -> Option<u32> {
        self.penalties.get(tunnel as usize).copied().flatten()
    }

    pub(super) fn is_placed(&self, tunnel: u32) -> bool {
        self.placed.get(tunnel as usize).copied().unwrap_or(false)
    }

    /// Notes how a route over a tunnel was found.
    pub(super) fn find(&mut self, tunnel: u32, cost: u32) {
        if let Some(found) = self.found.get_mut(tunnel as usize) {
            *found = cost.max(*found);
        }
    }

    /// What a tunnel's state costs; before there is a verdict, as it was found.
    pub(super) fn cost(&self, tunnel: u32) -> u32 {
        self.penalty(tunnel).unwrap_or_else(|| self.found.get(tunnel as usize).copied().unwrap_or(0))
    }

    /// Whether a hop over this device can carry traffic, so far as that is known.
    pub(super) fn is_up(&self, index: u32) -> bool {
        index == 0 || self.links.get(&index).is_some_and(|(_, up)| *up)
    }

    /// How a device is called, for people.
    pub(super) fn name(&self, index: u32) -> String {
        self.links.get(&index).map_or_else(|| format!("#{index}"), |(name, _)| name.clone())
    }
}
