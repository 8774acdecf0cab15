//! The process is stopped, or starved, with very many tunnels.

use std::time::Duration;

use crate::crowd::{Crowd, MANY};
use crate::process::{Starved, Stopped};
use crate::table::{Row, row};

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row(
            "fault_34_a_prober_that_is_stopped_for_10_s_judges_none_of_2000_tunnels",
            "SIGSTOP for 10 s with 2 000 tunnels: zero transitions, and the stall is told",
            || stopped(Duration::from_secs(10), |crowd| vec![crowd.daemon.prober()]),
        ),
        row(
            "fault_34_a_daemon_that_is_stopped_as_a_whole_judges_none_of_2000_tunnels",
            "the same where steward and prober are stopped together, for longer than a prober alone may be: the same prober goes on",
            || stopped(Duration::from_secs(25), |crowd| vec![crowd.daemon.child.id(), crowd.daemon.prober()]),
        ),
        row(
            "fault_34_a_daemon_that_starves_judges_none_of_2000_tunnels",
            "a fiftieth of a processor for 2 000 tunnels at one probe a second each: zero transitions",
            starved,
        )
        .alone(),
    ]
}

const STARVED: Duration = Duration::from_secs(12);

fn stopped(span: Duration, which: impl FnOnce(&Crowd) -> Vec<u32>) {
    let crowd = Crowd::healthy(MANY, "");
    let prober = crowd.daemon.prober();
    let stopped = Stopped::new(&which(&crowd));
    std::thread::sleep(span);
    drop(stopped);
    crowd.await_rounds(3);
    assert!(crowd.faults("stall") > 0, "{:#}", crowd.health());
    assert_eq!(crowd.daemon.prober(), prober, "the same one goes on");
    crowd.assert_calm(MANY);
    crowd.end();
}

fn starved() {
    let crowd = Crowd::healthy(MANY, "");
    let starved = Starved::new(&[crowd.daemon.child.id(), crowd.daemon.prober()]);
    std::thread::sleep(STARVED);
    drop(starved);
    crowd.await_rounds(2);
    assert!(crowd.faults("stall") > 0, "{:#}", crowd.health());
    crowd.assert_calm(MANY);
    crowd.end();
}
