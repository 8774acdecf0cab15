//! Whether the kernel announces each route over a next-hop object that changes
//! (`net.ipv4.nexthop_compat_mode`, since Linux 5.8).
//!
//! It does unless told otherwise, for daemons that know of no objects. With 100 000 routes over a group a
//! change of the group then takes some 130 ms, and else 3.

use std::io;
use std::path::Path;

const FILE: &str = "/proc/sys/net/ipv4/nexthop_compat_mode";
/// All settings of the kernel.
const ALL: &str = "/proc/sys";

/// Whether it does in the namespace of the calling thread.
///
/// # Errors
/// `NotFound` where the kernel has no such setting: then it has no next-hop objects, or always does.
pub fn notify_routes() -> io::Result<bool> {
    let text = std::fs::read_to_string(FILE).map_err(|error| named("reading", &error))?;
    Ok(text.trim() != "0")
}

/// Sets whether it shall, in the namespace of the calling thread. Other daemons there may rely on it.
///
/// # Errors
/// With the remedy, where `/proc/sys` is read-only or hidden, or this process may not write to it.
pub fn set_notify_routes(on: bool) -> io::Result<()> {
    let value = u8::from(on);
    let written = std::fs::write(FILE, format!("{value}\n"));
    written.map_err(|error| failure(&error, value, !Path::new(ALL).exists()))
}

/// Why it was not set, and what to do where only this process cannot. A unit of systemd's with
/// `ProcSubset=pid` has no settings to see (`hidden`): that says nothing of the kernel.
fn failure(error: &io::Error, value: u8, hidden: bool) -> io::Error {
    let barred = matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied);
    let error = named("writing", error);
    if !barred && !hidden {
        return error;
    }
    let remedy = format!(
        "{error}; put the line \"net.ipv4.nexthop_compat_mode = {value}\" into /etc/sysctl.d/adit.conf and run \
         \"sysctl --system\" (in a namespace of its own: \"ip netns exec NAME sysctl -p /etc/sysctl.d/adit.conf\")"
    );
    io::Error::new(error.kind(), remedy)
}

fn named(doing: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing} {FILE}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_only_this_process_cannot_set_it_the_remedy_is_told() {
        let told = |kind, hidden| failure(&io::Error::from(kind), 0, hidden).to_string();
        let remedy = "put the line \"net.ipv4.nexthop_compat_mode = 0\" into /etc/sysctl.d/adit.conf";
        assert!(told(io::ErrorKind::ReadOnlyFilesystem, false).contains(remedy));
        assert!(told(io::ErrorKind::PermissionDenied, false).contains(remedy));
        assert!(told(io::ErrorKind::NotFound, true).contains(remedy), "as under systemd/adit.service");
        assert!(!told(io::ErrorKind::NotFound, false).contains(remedy), "this kernel has none");
    }
}
