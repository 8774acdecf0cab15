#![no_main]

#[path = "../entries/onion.rs"]
mod onion;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onion::run(bytes));
