//! What is durable: the record of ESP sequence numbers, and what is remembered of tunnels; and everything
//! that may befall it.
//!
//! | file | holds |
//! | --- | --- |
//! | [`kit`] | associations, and a folder with a record in it |
//! | [`rules`] | what may be begun, resumed, reserved |
//! | [`damage`] | the file's text, cut, flipped, mixed with an older one: no mark is ever too low |
//! | [`files`] | the file: missing, restored, copied, not to be written; its lock |
//! | [`clerk`] | the thread that writes |
//! | [`kill`] | a process that is killed while it reserves and uses numbers |
//! | [`memory`] | what is remembered of tunnels: a process that is killed while it writes it, a full disk |
//!
//! Some trials need another process: this binary, run again with a part to play ([`kit::PART`]).

#![expect(clippy::unwrap_used, reason = "a trial that cannot go on must fail")]

mod clerk;
mod damage;
mod files;
mod kill;
mod kit;
mod memory;
mod rules;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

pub(crate) fn trial(name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, || {
        run();
        Ok(())
    })
}

fn main() -> ExitCode {
    if let Ok(part) = std::env::var(kit::PART) {
        return match part.as_str() {
            "hold" => files::hold(),
            "full" => files::meet_a_full_disk(),
            "denied" => files::be_denied(),
            "use" => kill::use_numbers(),
            "remember" => memory::remember(),
            "full of memories" => memory::meet_a_full_disk(),
            _ => panic!("no part {part}"),
        };
    }
    let args = Arguments::from_args();
    let trials =
        [rules::trials(), damage::trials(), files::trials(), clerk::trials(), kill::trials(), memory::trials()];
    libtest_mimic::run(&args, trials.into_iter().flatten().collect()).exit_code()
}
