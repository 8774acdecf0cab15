//! What `nexthop_notify_routes` does on this machine, as far as `adit check` can see it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;

use crate::config::{Config, Netns, NotifyRoutes};
use crate::io::netns;
use crate::steer::Mode;

const SYSCTL: &str = "net.ipv4.nexthop_compat_mode";
/// Each network namespace has its own.
const FILE: &str = "/proc/sys/net/ipv4/nexthop_compat_mode";

/// What should be known of it, a line for each namespace that routes are written to. Nothing where the
/// kernel lacks it, or where it is off.
pub(super) fn hints(config: &Config) -> Vec<String> {
    let kernel = &config.kernel;
    if !kernel.apply || kernel.mode == Mode::Metric {
        return Vec::new();
    }
    let written = config.routes.iter().filter(|route| route.leads());
    let places = written.filter_map(|route| config.places.get(route.place as usize));
    let namespaces: BTreeSet<Option<&Netns>> = places.map(|place| place.netns.as_ref()).collect();
    namespaces.into_iter().filter_map(|netns| hint(kernel.notify_routes, netns, read(netns))).collect()
}

/// Whether it is on in a namespace.
fn read(netns: Option<&Netns>) -> io::Result<bool> {
    let file = netns.map(|netns| File::open(netns.path())).transpose()?;
    match netns::within(file.as_ref(), || fs::read_to_string(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        text => Ok(text?.trim() != "0"),
    }
}

fn hint(notify: NotifyRoutes, netns: Option<&Netns>, on: io::Result<bool>) -> Option<String> {
    let place = netns.map(|netns| format!(" in namespace {netns}")).unwrap_or_default();
    let found = match on {
        Ok(false) => return None,
        Ok(true) => format!("{SYSCTL}{place} is 1"),
        Err(error) => format!("{SYSCTL}{place} cannot be read ({error}); if it is 1"),
    };
    Some(match notify {
        NotifyRoutes::Keep => format!(
            "{found}: the kernel announces every route at every fail-over (84 ms instead of 0.1 ms, \
             measured with 100 000 routes); nexthop_notify_routes = \"off\" ends that, by a sysctl that other routing \
             daemons may rely on"
        ),
        NotifyRoutes::Off => format!(
            "{found}: `adit run` sets it to 0, and other routing daemons hear of a fail-over by the next-hop group \
             only, no longer route by route"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> io::Result<bool> {
        Err(io::Error::from(io::ErrorKind::PermissionDenied))
    }

    #[test]
    fn nothing_is_said_where_nothing_is_announced() {
        assert_eq!(hint(NotifyRoutes::Keep, None, Ok(false)), None);
        assert_eq!(hint(NotifyRoutes::Off, None, Ok(false)), None);
    }

    #[test]
    fn the_cost_of_keeping_it_and_the_price_of_turning_it_off_are_said() {
        let keep = hint(NotifyRoutes::Keep, None, Ok(true)).unwrap_or_default();
        assert!(keep.starts_with("net.ipv4.nexthop_compat_mode is 1: ") && keep.contains("84 ms"), "{keep}");
        let off = hint(NotifyRoutes::Off, None, Ok(true)).unwrap_or_default();
        assert!(off.contains("sets it to 0") && off.contains("other routing daemons"), "{off}");
        let unseen = hint(NotifyRoutes::Keep, None, denied()).unwrap_or_default();
        assert!(unseen.contains("cannot be read (permission denied); if it is 1: "), "{unseen}");
    }
}
