//! What `adit explain` says is true: what is still missing, and that nothing comes sooner than it says.

#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

mod sim;

use adit::engine::State;
use adit::engine::explain::{Explanation, Next};
use adit::engine::health::Ratio;
use sim::{Sim, ms, tunnel};

fn explain(sim: &mut Sim, tunnel: u32) -> Explanation {
    let now = sim.now;
    sim.engine.explain(now, tunnel).unwrap()
}

fn to(explanation: &Explanation, state: State) -> &Next {
    explanation.next.iter().find(|next| next.to == state).unwrap_or_else(|| panic!("not to {state}: {explanation:?}"))
}

#[test]
fn every_ratio_that_can_be_configured_is_explained_at_once() {
    for (ratio, needs) in [
        (1_000, "2 more failed samples while the last 5m hold 0 of 32"),
        (500_000, "32 more failed samples while the last 5m hold 0 of 32"),
        (999_999, "31999968 more failed samples while the last 5m hold 0 of 32"),
        (1_000_000, "no success left in the last 5m, which hold 0 failures of 32"),
    ] {
        let mut settings = tunnel(0);
        settings.check.rules.degraded_ratio = Ratio(ratio);
        let mut sim = Sim::new(vec![settings], Vec::new(), 1);
        while sim.view(0).window.samples < 32 {
            sim.run_for(ms(100));
        }
        assert_eq!(to(&explain(&mut sim, 0), State::Degraded).needs, needs);
    }
}
