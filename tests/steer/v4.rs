//! IPv4: `fib_table_insert`, `fib_table_delete`, `fib_nh_match`, `fib_sync_down_dev`.

use adit::steer::{Hop, Way};

use super::kernel::{EEXIST, ESRCH, Goes, NextHop, Refused, Row, Rows};

/// Adds a route, behind all that have its metric.
pub(crate) fn add(rows: &mut Rows, mut row: Row, exclusive: bool) -> Result<(), Refused> {
    if let Goes::Hops(hops) = &mut row.goes
        && let [alone] = &mut hops[..]
    {
        alone.hop.weight = 1;
    }
    let same = |is: &Row| is.metric == row.metric && (exclusive || *is == row);
    if rows.iter().any(same) {
        return Err(EEXIST);
    }
    let behind = rows.partition_point(|is| is.metric <= row.metric);
    rows.insert(behind, row);
    Ok(())
}

/// Deletes the first of a daemon's routes that matches. Hops are always named as several (`RTA_MULTIPATH`).
pub(crate) fn delete(rows: &mut Rows, tag: u8, metric: u32, way: &Way) -> Result<(), Refused> {
    let matches = |row: &Row| match (way, &row.goes) {
        (Way::Hops(asked), Goes::Hops(is)) => matches_hops(asked, is),
        (Way::Object(asked), Goes::Object(is)) => asked == is,
        (Way::Unreachable, Goes::Unreachable) | (Way::Other, _) => true,
        _ => false,
    };
    let at = rows.iter().position(|row| row.protocol == tag && row.metric == metric && matches(row));
    at.map(|at| drop(rows.remove(at))).ok_or(ESRCH)
}

/// Each hop of the route against the one that is named at its place; those that are named beyond do not
/// matter, nor do weights.
fn matches_hops(asked: &[Hop], is: &[NextHop]) -> bool {
    is.len() <= asked.len()
        && asked.iter().zip(is).all(|(asked, NextHop { hop, .. })| {
            (asked.device == 0 || asked.device == hop.device) && (asked.via.is_none() || asked.via == hop.via)
        })
}

/// Hops over the device are dead, and a route goes when all its hops are.
pub(crate) fn down(rows: &mut Rows, index: u32) {
    rows.retain_mut(|row| {
        let Goes::Hops(hops) = &mut row.goes else { return true };
        hops.iter_mut().filter(|next| next.hop.device == index).for_each(|next| next.dead = true);
        hops.iter().any(|next| !next.dead)
    });
}

pub(crate) fn told(rows: &Rows) -> Vec<(u8, u32, Way)> {
    let way = |goes: &Goes| match goes {
        Goes::Hops(hops) => Way::Hops(hops.iter().map(|next| next.hop).collect()),
        Goes::Object(id) => Way::Object(*id),
        Goes::Unreachable => Way::Unreachable,
        Goes::Blackhole => Way::Other,
    };
    rows.iter().map(|row| (row.protocol, row.metric, way(&row.goes))).collect()
}
