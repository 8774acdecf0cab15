//! Next-hop objects: `rtm_new_nexthop`, `replace_nexthop`, `remove_nexthop`.

use adit::steer::{Leads, Nexthop};
use adit::wire::Family;
use ipnet::IpNet;

use super::kernel::{EEXIST, EINVAL, ENOENT, ESRCH, Goes, Kernel, Refused, family};

pub(crate) fn add(kernel: &mut Kernel, tag: u8, nexthop: &Nexthop) -> Result<(), Refused> {
    if kernel.objects.contains_key(&nexthop.id) {
        return Err(EEXIST);
    }
    let leads = checked(kernel, &nexthop.leads)?;
    kernel.objects.insert(nexthop.id, (tag, leads));
    Ok(())
}

pub(crate) fn replace(kernel: &mut Kernel, tag: u8, nexthop: &Nexthop) -> Result<(), Refused> {
    let (owner, before) = kernel.objects.get(&nexthop.id).ok_or(ENOENT)?.clone();
    // The writer looks at this, not the kernel.
    if owner != tag {
        return Err(ESRCH);
    }
    match (&before, &nexthop.leads) {
        (Leads::Hop(..), Leads::Group(_)) => return Err((EINVAL, "Can not replace a nexthop with a nexthop group.")),
        (Leads::Group(_), Leads::Hop(..)) => return Err((EINVAL, "Can not replace a nexthop group with a nexthop.")),
        _ => {}
    }
    let leads = checked(kernel, &nexthop.leads)?;
    kernel.objects.insert(nexthop.id, (tag, leads));
    Ok(())
}

fn checked(kernel: &Kernel, leads: &Leads) -> Result<Leads, Refused> {
    match leads {
        Leads::Hop(_, hop) if hop.device == 0 => {
            Err((EINVAL, "Device attribute required for non-blackhole and non-fdb nexthops."))
        }
        Leads::Hop(family, hop) => Ok(Leads::Hop(*family, kernel.resolve(*hop)?)),
        Leads::Group(members) => {
            for (at, (id, _)) in members.iter().enumerate() {
                match kernel.objects.get(id) {
                    None => return Err((EINVAL, "Invalid nexthop id.")),
                    Some((_, Leads::Group(_))) => {
                        return Err((EINVAL, "Hash-threshold group can not be a nexthop within a group."));
                    }
                    Some(_) => {}
                }
                if members[..at].iter().any(|(other, _)| other == id) {
                    return Err((EINVAL, "Nexthop id can not be used twice in a group."));
                }
            }
            if members.is_empty() { Err((EINVAL, "Invalid nexthop group.")) } else { Ok(leads.clone()) }
        }
        Leads::Other => Err((EINVAL, "Invalid attribute.")),
    }
}

/// Whether a route may lead over an object.
pub(crate) fn may_carry(kernel: &Kernel, id: u32, prefix: &IpNet) -> Result<(), Refused> {
    let (_, leads) = kernel.objects.get(&id).ok_or((EINVAL, "Nexthop id does not exist."))?;
    let families: Vec<Family> = match leads {
        Leads::Hop(family, _) => vec![*family],
        Leads::Group(members) => {
            let of = members.iter().filter_map(|(id, _)| kernel.objects.get(id));
            of.filter_map(|(_, leads)| if let Leads::Hop(family, _) = leads { Some(*family) } else { None }).collect()
        }
        Leads::Other => Vec::new(),
    };
    if family(prefix) == Family::V6 && families.contains(&Family::V4) {
        return Err((EINVAL, "IPv6 routes can not use an IPv4 nexthop."));
    }
    Ok(())
}

impl Kernel {
    /// Objects that routes or groups of others lead over.
    pub(crate) fn lent(&self, tag: u8) -> Vec<u32> {
        let rows = self.tables.values().flatten().filter(|row| row.protocol != tag);
        let over = rows.filter_map(|row| if let Goes::Object(id) = row.goes { Some(id) } else { None });
        let groups = self.objects.values().filter(|(owner, _)| *owner != tag);
        let members = groups.flat_map(|(_, leads)| match leads {
            Leads::Group(members) => members.iter().map(|(id, _)| *id).collect(),
            Leads::Hop(..) | Leads::Other => Vec::new(),
        });
        over.chain(members).collect()
    }
}

/// Removes an object, with it its place in groups, groups that are left empty, and all routes over them.
pub(crate) fn remove(kernel: &mut Kernel, id: u32) {
    if kernel.objects.remove(&id).is_none() {
        return;
    }
    for rows in kernel.tables.values_mut() {
        rows.retain(|row| row.goes != Goes::Object(id));
    }
    let mut empty = Vec::new();
    for (&group, (_, leads)) in &mut kernel.objects {
        if let Leads::Group(members) = leads {
            members.retain(|(member, _)| *member != id);
            if members.is_empty() {
                empty.push(group);
            }
        }
    }
    empty.into_iter().for_each(|group| remove(kernel, group));
}
