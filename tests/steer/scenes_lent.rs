//! Next-hop objects of ours that others use: to delete them would take the others' routes away.

use adit::steer::{KernelRoute, Leads, Mode, Way};

use super::kernel::{Kernel, STATIC, TAG};
use super::rig::Rig;
use super::setup::{pair, shared};

/// How others use one of ours.
#[derive(Debug, Clone, Copy)]
enum Use {
    Route,
    Group,
}

const THEIRS: u32 = 7;
const PREFIX: &str = "10.99.0.0/16";

/// Objects of ours, single ones or groups.
fn ids(kernel: &Kernel, groups: bool) -> Vec<u32> {
    let is = |(owner, leads): &(u8, Leads)| *owner == TAG && matches!(leads, Leads::Group(_)) == groups;
    kernel.objects.iter().filter(|(_, object)| is(object)).map(|(&id, _)| id).collect()
}

fn route(id: u32) -> KernelRoute {
    KernelRoute { table: 254, prefix: PREFIX.parse().unwrap(), metric: 0, way: Way::Object(id) }
}

fn borrow(kernel: &mut Kernel, id: u32, how: Use) {
    match how {
        Use::Route => kernel.add(STATIC, &route(id), true).unwrap(),
        Use::Group => drop(kernel.objects.insert(THEIRS, (STATIC, Leads::Group(vec![(id, 1)])))),
    }
}

fn give_back(kernel: &mut Kernel, id: u32, how: Use) {
    match how {
        Use::Route => kernel.delete(STATIC, &route(id)).unwrap(),
        Use::Group => drop(kernel.objects.remove(&THEIRS)),
    }
}

/// All that are lent: single ones by a route and by a group, and a group by a route, which needs its members.
fn loans(kernel: &Kernel) -> Vec<(u32, Use, Vec<u32>)> {
    let single = ids(kernel, false)[0];
    let group = ids(kernel, true)[0];
    let (_, Leads::Group(members)) = &kernel.objects[&group] else { panic!() };
    let whole = members.iter().map(|(id, _)| *id).chain([group]).collect();
    vec![(single, Use::Route, vec![single]), (single, Use::Group, vec![single]), (group, Use::Route, whole)]
}

/// A rig that settled by next-hop objects.
fn settled() -> Rig {
    let mut rig = Rig::start(Kernel::with_devices(3), shared(Mode::Nexthop));
    rig.judge(&[0, 0, 0]);
    rig
}

fn left(rig: &Rig) -> Vec<u32> {
    let mut left = [ids(&rig.kernel, false), ids(&rig.kernel, true)].concat();
    left.sort_unstable();
    left
}

#[test]
fn the_sweep_leaves_objects_that_others_lead_over_until_they_do_not() {
    for at in 0..3 {
        let mut rig = settled();
        let (id, how, mut kept) = loans(&rig.kernel).swap_remove(at);
        kept.sort_unstable();
        borrow(&mut rig.kernel, id, how);
        let others = rig.kernel.part(TAG, false);
        let mut rig = rig.restart(pair(Mode::Metric));
        rig.judge(&[0, 0]);
        assert_eq!(left(&rig), kept, "{how:?} over {id}");
        assert_eq!(rig.kernel.part(TAG, false), others, "{how:?} over {id}");
        let named = |what: &&String| what.contains(&id.to_string());
        assert_eq!(rig.warnings.iter().filter(named).count(), 1, "{how:?} over {id}: {:?}", rig.warnings);
        let told = rig.warnings.len();
        for _ in 0..3 {
            rig.look();
            assert_eq!(rig.run(), 0, "{how:?} over {id}: {:?}", rig.changes.last());
        }
        assert_eq!(rig.warnings.len(), told, "said again: {:?}", rig.warnings);
        give_back(&mut rig.kernel, id, how);
        rig.look();
        rig.run();
        rig.assert_settled();
        assert_eq!(rig.refused, []);
    }
}

#[test]
fn at_the_end_objects_that_others_lead_over_stay() {
    for at in 0..3 {
        let mut rig = settled();
        let (id, how, mut kept) = loans(&rig.kernel).swap_remove(at);
        kept.sort_unstable();
        borrow(&mut rig.kernel, id, how);
        let others = rig.kernel.part(TAG, false);
        rig.look();
        rig.run();
        rig.dismantle();
        assert_eq!(left(&rig), kept, "{how:?} over {id}");
        assert_eq!(rig.kernel.part(TAG, false), others, "{how:?} over {id}");
        let routes = rig.kernel.tables.values().flatten().filter(|row| row.protocol == TAG).count();
        assert_eq!(routes, 0, "{:#?}", rig.kernel.tables);
        let named = |what: &&String| what.contains(&id.to_string());
        assert_eq!(rig.warnings.iter().filter(named).count(), 1, "{how:?} over {id}: {:?}", rig.warnings);
        assert_eq!(rig.refused, []);
    }
}

#[test]
fn an_object_that_is_lent_is_steered_as_before() {
    let mut rig = settled();
    let group = ids(&rig.kernel, true)[0];
    borrow(&mut rig.kernel, group, Use::Route);
    rig.look();
    rig.judge(&[0, super::setup::DOWN, 0]);
    rig.assert_settled();
    assert_eq!(rig.warnings, [""; 0], "nothing was to be deleted");
}
