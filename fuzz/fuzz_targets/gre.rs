#![no_main]

#[path = "../entries/gre.rs"]
mod gre;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gre::run(bytes));
