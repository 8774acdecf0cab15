//! Where an entry is found by its table and prefix.

use ipnet::IpNet;

/// No entry yet.
const NONE: u32 = u32::MAX;

/// Entries, sorted by table and prefix. The kernel lists routes in nearly this order, so that the next one
/// is nearly always where the last one was, or right behind.
#[derive(Debug, Default)]
pub(super) struct Index {
    places: Vec<(u32, IpNet, u32)>,
}

/// Finds one entry after the other.
pub(super) struct Finder<'a> {
    index: &'a Index,
    at: usize,
}

impl Index {
    /// An index in which these can be entered.
    pub(super) fn new(keys: impl Iterator<Item = (u32, IpNet)>) -> Self {
        let mut places: Vec<_> = keys.map(|(table, prefix)| (table, prefix, NONE)).collect();
        places.sort_unstable();
        places.dedup();
        places.shrink_to_fit();
        Self { places }
    }

    /// Enters `next`, unless there is an entry already; gives the one that is there.
    pub(super) fn enter(&mut self, table: u32, prefix: IpNet, next: u32) -> u32 {
        let Some(place) = self.place(table, prefix) else { return next };
        let entry = &mut self.places[place].2;
        if *entry == NONE {
            *entry = next;
        }
        *entry
    }

    pub(super) fn contains(&self, table: u32, prefix: IpNet) -> bool {
        self.place(table, prefix).is_some()
    }

    pub(super) const fn finder(&self) -> Finder<'_> {
        Finder { index: self, at: 0 }
    }

    fn place(&self, table: u32, prefix: IpNet) -> Option<usize> {
        self.places.binary_search_by(|place| (place.0, place.1).cmp(&(table, prefix))).ok()
    }
}

impl Finder<'_> {
    /// The entry of a table's prefix.
    pub(super) fn find(&mut self, table: u32, prefix: IpNet) -> Option<u32> {
        let places = &self.index.places;
        let near = [self.at, self.at + 1];
        let is = |&at: &usize| places.get(at).is_some_and(|place| (place.0, place.1) == (table, prefix));
        let at = near.into_iter().find(is).or_else(|| self.index.place(table, prefix))?;
        self.at = at;
        Some(places[at].2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> (u32, IpNet) {
        let text =
            if number.is_multiple_of(2) { format!("10.{number}.0.0/16") } else { format!("2001:db8:{number}::/48") };
        (100 + number % 3, text.parse().unwrap())
    }

    #[test]
    fn every_entry_is_found_in_whichever_order_and_nothing_else() {
        let mut index = Index::new((0..200).rev().map(key).chain((0..50).map(key)));
        for number in (0..200).rev() {
            let (table, prefix) = key(number);
            assert_eq!(index.enter(table, prefix, number), number);
            assert_eq!(index.enter(table, prefix, 1_000), number, "the first one stays");
        }
        let mut finder = index.finder();
        for number in (0..200).chain((0..200).rev()).chain((0..200).map(|number| number * 77 % 200)) {
            let (table, prefix) = key(number);
            assert_eq!(finder.find(table, prefix), Some(number));
            assert!(index.contains(table, prefix));
            assert_eq!(finder.find(table + 3, prefix), None);
        }
    }
}
