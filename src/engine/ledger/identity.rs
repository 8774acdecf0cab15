//! Whose machine the record was written on.

use std::fmt;

use sha2::{Digest, Sha256};

/// What tells a machine from another: two names that need not both be known. Only hashes of them are
/// kept, for a machine's id is not to be shown around (machine-id(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity {
    machine: Option<u64>,
    hardware: Option<u64>,
}

impl Identity {
    /// The identity of a machine with these contents of `/etc/machine-id`, which is copied with a
    /// disk, and of `/sys/class/dmi/id/product_uuid`, which is not, but which only root can read.
    #[must_use]
    pub fn new(machine_id: Option<&str>, product_uuid: Option<&str>) -> Self {
        Self {
            machine: machine_id.and_then(|id| hash("adit: machine-id, 1", id)),
            hardware: product_uuid.and_then(|id| hash("adit: product_uuid, 1", id)),
        }
    }

    /// Whether these are surely two machines: a name that both know differs.
    #[must_use]
    pub fn contradicts(self, other: Self) -> bool {
        let differ = |ours: Option<u64>, theirs: Option<u64>| ours.zip(theirs).is_some_and(|(one, two)| one != two);
        differ(self.machine, other.machine) || differ(self.hardware, other.hardware)
    }

    /// The same machine, and all that is known of it.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        const fn either(one: Option<u64>, two: Option<u64>) -> Option<u64> {
            if one.is_some() { one } else { two }
        }
        Self { machine: either(self.machine, other.machine), hardware: either(self.hardware, other.hardware) }
    }

    /// Reads `machine=… hardware=…`.
    pub(super) fn parse(machine: &str, hardware: &str) -> Option<Self> {
        let part = |text: &str, name: &str| match text.strip_prefix(name)? {
            "-" => Some(None),
            digits => u64::from_str_radix(digits, 16).ok().map(Some),
        };
        Some(Self { machine: part(machine, "machine=")?, hardware: part(hardware, "hardware=")? })
    }
}

/// As `machine=… hardware=…`, a part that is not known as `-`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |part: Option<u64>| part.map_or("-".to_owned(), |hash| format!("{hash:016x}"));
        write!(f, "machine={} hardware={}", part(self.machine), part(self.hardware))
    }
}

fn hash(domain: &str, id: &str) -> Option<u64> {
    let id = id.trim().to_ascii_lowercase();
    // A machine that boots for the first time has no id yet, and this in its place (machine-id(5)).
    if id.is_empty() || id == "uninitialized" {
        return None;
    }
    let mut hash = Sha256::new();
    hash.update(domain);
    hash.update(b"\0");
    hash.update(id);
    Some(super::text::leading(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_differ_if_a_name_that_both_know_differs() {
        let id = |machine, hardware| Identity::new(machine, hardware);
        let here = id(Some("aa\n"), Some("BB"));
        assert!(!here.contradicts(id(Some("aa"), Some("bb"))));
        assert!(here.contradicts(id(Some("ab"), Some("bb"))));
        assert!(here.contradicts(id(Some("aa"), Some("bc"))));
        assert!(!here.contradicts(id(None, Some("bb"))));
        assert!(!here.contradicts(id(Some("aa"), None)));
        assert!(!here.contradicts(Identity::default()));
        assert!(!id(Some("aa"), None).contradicts(id(None, Some("aa"))), "two different things");
    }

    #[test]
    fn a_name_that_is_none_is_not_known() {
        for none in ["", "\n", "uninitialized\n"] {
            assert_eq!(Identity::new(Some(none), Some(none)), Identity::default());
        }
    }

    #[test]
    fn it_is_read_as_it_is_written_and_shows_no_id() {
        let id = "3d1219c7c4c5404aaa1f6d2a48adfda4";
        for (machine, hardware) in [(None, None), (Some(id), None), (None, Some(id)), (Some(id), Some(id))] {
            let identity = Identity::new(machine, hardware);
            let text = identity.to_string();
            let (one, two) = text.split_once(' ').unwrap();
            assert_eq!(Identity::parse(one, two), Some(identity));
            assert!(!text.contains(&id[..8]));
        }
        for (one, two) in [("machine=", "hardware=-"), ("hardware=-", "machine=-"), ("machine=-", "hardware=x")] {
            assert_eq!(Identity::parse(one, two), None);
        }
    }

    #[test]
    fn what_is_known_of_a_machine_is_not_forgotten() {
        let (machine, hardware) = (Identity::new(Some("aa"), None), Identity::new(None, Some("bb")));
        assert_eq!(machine.and(hardware), Identity::new(Some("aa"), Some("bb")));
        assert_eq!(hardware.and(Identity::new(None, Some("cc"))), hardware);
    }
}
