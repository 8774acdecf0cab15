//! IPv6: `fib6_add_rt2node`, `ip6_route_multipath_add`, `ip6_route_del`, `fib6_ifdown`, `rt6_fill_node`.

use adit::steer::{Hop, Way};

use super::kernel::{EEXIST, EINVAL, ESRCH, Goes, NextHop, Refused, Row, Rows};

/// Adds a route, each hop as one of its own, all or none.
pub(crate) fn add(rows: &mut Rows, row: Row, exclusive: bool) -> Result<(), Refused> {
    let Row { metric, protocol, goes } = row;
    let Goes::Hops(hops) = goes else { return add_one(rows, Row { metric, protocol, goes }, exclusive) };
    if hops.len() > 1 && hops.iter().any(|next| next.hop.via.is_none()) {
        return Err((EINVAL, "Device only routes can not be added for IPv6 using the multipath API."));
    }
    let before = rows.clone();
    for (at, mut next) in hops.into_iter().enumerate() {
        if next.hop.via.is_none() {
            next.hop.weight = 1;
        }
        let row = Row { metric, protocol, goes: Goes::Hops(vec![next]) };
        if let Err(refused) = add_one(rows, row, exclusive && at == 0) {
            *rows = before;
            return Err(refused);
        }
    }
    Ok(())
}

/// Behind all that have its metric. Whose they are does not matter.
fn add_one(rows: &mut Rows, row: Row, exclusive: bool) -> Result<(), Refused> {
    let same = |is: &Row| match (&is.goes, &row.goes) {
        (Goes::Hops(is), Goes::Hops(new)) => (is[0].hop.device, is[0].hop.via) == (new[0].hop.device, new[0].hop.via),
        (Goes::Object(is), Goes::Object(new)) => is == new,
        // Both lead to the loopback device.
        (Goes::Unreachable | Goes::Blackhole, Goes::Unreachable | Goes::Blackhole) => true,
        _ => false,
    };
    if rows.iter().any(|is| is.metric == row.metric && (exclusive || same(is))) {
        return Err(EEXIST);
    }
    let behind = rows.partition_point(|is| is.metric <= row.metric);
    rows.insert(behind, row);
    Ok(())
}

/// A hop with a gateway shares its metric with the others that have one (`rt6_qualify_for_ecmp`).
fn shares(row: &Row, metric: u32) -> Option<&NextHop> {
    match &row.goes {
        Goes::Hops(hops) if row.metric == metric && hops[0].hop.via.is_some() => Some(&hops[0]),
        _ => None,
    }
}

/// Deletes what matches first, for each hop that is named.
pub(crate) fn delete(rows: &mut Rows, tag: u8, metric: u32, way: &Way) -> Result<(), Refused> {
    let mut take = |matches: &dyn Fn(&Goes) -> bool| {
        let at = rows.iter().position(|row| row.protocol == tag && row.metric == metric && matches(&row.goes));
        at.map(|at| rows.remove(at)).ok_or(ESRCH)
    };
    match way {
        Way::Hops(hops) => {
            let mut done = Ok(());
            for asked in hops {
                // What leads over an object matches whatever hop is named.
                let matches = |goes: &Goes| match goes {
                    Goes::Hops(is) => matches_hop(asked, &is[0].hop),
                    Goes::Object(_) => true,
                    Goes::Unreachable | Goes::Blackhole => false,
                };
                done = take(&matches).map(drop).and(done);
            }
            done
        }
        Way::Object(id) => take(&|goes| *goes == Goes::Object(*id)).map(drop),
        // By the loopback device.
        Way::Unreachable => take(&|goes| !matches!(goes, Goes::Hops(_))).map(drop),
        // The first, with all its siblings.
        Way::Other => {
            let taken = take(&|_| true)?;
            if shares(&taken, metric).is_some() {
                rows.retain(|row| shares(row, metric).is_none());
            }
            Ok(())
        }
    }
}

fn matches_hop(asked: &Hop, is: &Hop) -> bool {
    (asked.device == 0 || asked.device == is.device) && (asked.via.is_none() || asked.via == is.via)
}

/// One of several siblings is dead, and stays; the last that lives takes the dead with it.
pub(crate) fn down(rows: &mut Rows, index: u32) {
    for row in rows.iter_mut() {
        if let Goes::Hops(hops) = &mut row.goes
            && hops[0].hop.device == index
        {
            hops[0].dead = true;
        }
    }
    let alive: Vec<u32> = rows
        .iter()
        .filter(|row| shares(row, row.metric).is_some_and(|next| !next.dead))
        .map(|row| row.metric)
        .collect();
    rows.retain(|row| match &row.goes {
        Goes::Hops(hops) => !hops[0].dead || hops[0].hop.via.is_some() && alive.contains(&row.metric),
        Goes::Object(_) | Goes::Unreachable | Goes::Blackhole => true,
    });
}

/// Siblings are told as one, at the place and by the protocol of the first; what stands between them is
/// passed over. One alone is told without its weight.
pub(crate) fn told(rows: &Rows) -> Vec<(u8, u32, Way)> {
    let (mut told, mut at) = (Vec::new(), 0);
    while let Some(row) = rows.get(at) {
        let way = match &row.goes {
            Goes::Hops(hops) if shares(row, row.metric).is_none() => Way::Hops(vec![hops[0].hop]),
            Goes::Hops(_) => {
                let siblings: Vec<Hop> =
                    rows.iter().filter_map(|is| shares(is, row.metric)).map(|next| next.hop).collect();
                at = rows.iter().rposition(|is| shares(is, row.metric).is_some()).unwrap_or(at);
                match siblings[..] {
                    [alone] => Way::Hops(vec![Hop { weight: 1, ..alone }]),
                    _ => Way::Hops(siblings),
                }
            }
            Goes::Object(id) => Way::Object(*id),
            Goes::Unreachable => Way::Unreachable,
            Goes::Blackhole => Way::Other,
        };
        told.push((row.protocol, row.metric, way));
        at += 1;
    }
    told
}

/// Whether something stands between siblings.
pub(crate) fn hides(rows: &Rows) -> bool {
    let told = told(rows).into_iter().map(|(_, _, way)| if let Way::Hops(hops) = way { hops.len() } else { 1 });
    told.sum::<usize>() < rows.len()
}
