#![no_main]

#[path = "../entries/esp.rs"]
mod esp;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esp::run(bytes));
