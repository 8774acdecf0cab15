//! The way an answer must come: its return path, its addresses, its mark.

use super::Interface;
use super::prober::Prober;
use super::settings::ReturnPath;
use crate::wire::payload;
use crate::wire::probe::{Encapsulation, Path};
use crate::wire::{Direction, Ends, Onion, Reject, Reply};

impl Prober {
    /// Whether an answer came the way it must (return path, addresses, mark).
    pub(super) fn check_way(
        &self,
        reply: &Reply<'_>,
        interface: Interface,
        is_ours: impl Fn(&Path) -> bool,
    ) -> Result<(), Reject> {
        let inner = self.inner(reply.fields.sequence);
        let direction = self.settings.onion.style.direction;
        self.check_way_of(direction, inner, self.settings.check.mark_key.as_ref(), reply, interface, is_ours)
    }

    /// The same for a probe between these ends, whose answer must bear this mark.
    pub(super) fn check_way_of(
        &self,
        direction: Direction,
        inner: Ends,
        mark_key: Option<&payload::Key>,
        reply: &Reply<'_>,
        interface: Interface,
        is_ours: impl Fn(&Path) -> bool,
    ) -> Result<(), Reject> {
        let any = self.settings.check.return_path == ReturnPath::Any;
        match direction {
            Direction::Unidirectional => self.check_bare(&reply.path, interface)?,
            Direction::Bidirectional if any && is_ours(&reply.path) => {}
            Direction::Bidirectional => self.check_inside(&reply.path, interface)?,
        }
        if reply.inner != inner {
            return Err(Reject::WrongInner);
        }
        match mark_key {
            Some(key) if !payload::is_marked(reply.payload, key) => Err(Reject::Mark),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether an answer came outside the tunnel.
    fn check_bare(&self, path: &Path, interface: Interface) -> Result<(), Reject> {
        match path {
            Path::Bare if interface != 0 && self.settings.interface == Some(interface) => Err(Reject::WrongPath),
            Path::Bare => Ok(()),
            Path::Gre { .. } | Path::Esp { .. } => Err(Reject::WrongPath),
        }
    }

    /// Whether an answer came inside this tunnel.
    fn check_inside(&self, path: &Path, interface: Interface) -> Result<(), Reject> {
        let Onion { outer, encapsulation, .. } = &self.settings.onion;
        match (encapsulation, *path) {
            (Encapsulation::Gre(_), Path::Gre { outer: came, .. })
            | (Encapsulation::Esp(_), Path::Esp { outer: came, .. })
                if came != *outer =>
            {
                Err(Reject::WrongOuter)
            }
            (Encapsulation::Gre(options), Path::Gre { key, .. }) if key != options.key => Err(Reject::WrongKey),
            (Encapsulation::Esp(_), Path::Esp { spi, .. }) if !self.receives(spi) => Err(Reject::WrongKey),
            (Encapsulation::Esp(shape), Path::Esp { udp, .. }) if udp != shape.udp() => Err(Reject::WrongPath),
            (Encapsulation::Gre(_), Path::Gre { .. }) | (Encapsulation::Esp(_), Path::Esp { .. }) => Ok(()),
            // Without a device it is the kernel's policy that must let nothing in bare.
            (Encapsulation::Device, Path::Bare)
                if self.settings.interface.is_none_or(|own| own != 0 && own == interface) =>
            {
                Ok(())
            }
            (Encapsulation::Gre(_) | Encapsulation::Esp(_) | Encapsulation::Device, _) => Err(Reject::WrongPath),
        }
    }
}
