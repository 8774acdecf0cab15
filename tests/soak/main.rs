//! A long run: a daemon, two tunnels, and one trouble after another, against a model of what adit must say.
//!
//! ```sh
//! ADIT_SOAK_SECONDS=86400 ADIT_SOAK_SEED=7 cargo test --test soak -- --nocapture
//! ```
//!
//! Without these it takes some seconds, with the seed 1. The same seed is the same troubles in the same order;
//! a failure says the seed and what was done before.
//!
//! | file | holds |
//! | --- | --- |
//! | `deeds` | what can happen, and doing it |
//! | `model` | what must be so afterwards |

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a trial that cannot go on must fail")]
#![allow(dead_code, reason = "each of the modules of others is of use in part")]

#[path = "../netns/by_hand.rs"]
mod by_hand;
mod deeds;
#[path = "../netns/kit.rs"]
mod kit;
mod model;
#[path = "../netns/sealed.rs"]
mod sealed;
#[path = "../netns/silent.rs"]
mod silent;
#[path = "../netns/site.rs"]
mod site;
#[path = "../netns/world.rs"]
mod world;

use std::process::ExitCode;
use std::time::Duration;

use adit::engine::schedule::mix;
use adit::io::clock::Clock;
use libtest_mimic::Arguments;

use deeds::Deed;
use model::Model;
use world::{Case, World, case};

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let world = World::enter(args.list);
    let trial = case("what_adit_says_agrees_with_what_happens", soak).trial(&world);
    libtest_mimic::run(&args, vec![trial]).exit_code()
}

/// A number that the environment gives.
fn given(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |number| number.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

fn soak() {
    let (seed, length) = (given("ADIT_SOAK_SEED", 1), Duration::from_secs(given("ADIT_SOAK_SECONDS", 15)));
    println!("seed {seed}, {} s", length.as_secs());
    let (clock, mut drawn) = (Clock::start(), 0);
    let mut draw = |below: u64| {
        drawn += 1;
        mix(seed, drawn) % below
    };
    let mut model = Model::start(seed);
    let (mut done, mut well) = (0_u64, 0);
    while clock.age() < length {
        let deed = Deed::draw(&mut draw);
        if done.is_multiple_of(10) {
            println!("{:>6} s  {done} deeds so far", clock.age().as_secs());
        }
        well += model.well();
        model.suffer(deed);
        done += 1;
    }
    model.end();
    println!("{done} deeds in {} s, and {well} times a tunnel that had no reason to be sick", clock.age().as_secs());
    assert!(done >= 3, "too few to prove anything");
}
