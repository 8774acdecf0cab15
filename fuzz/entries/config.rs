//! The text of a configuration: what is good, written out, is read again as the same; what is wrong has a place.
//!
//! The first byte chooses between the daemon's and the reflector's. `%%` on a line begins another file. No file
//! is touched: the texts are handed over as one process hands them to the other.

use adit::config::{Config, Problems, ReflectConfig, Texts};

/// Key files, by how many bytes they hold.
const KEYS: [(&str, usize); 11] = [
    ("/k/16", 16),
    ("/k/20", 20),
    ("/k/20b", 20),
    ("/k/32", 32),
    ("/k/32b", 32),
    ("/k/36", 36),
    ("/k/36b", 36),
    ("/k/48", 48),
    ("/k/48b", 48),
    ("/k/64", 64),
    ("/k/64b", 64),
];

pub(crate) fn run(bytes: &[u8]) {
    let Some((&choice, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    if choice & 1 != 0 {
        // This one reads the key files that it finds named, and there is no other way in.
        if !text.contains("file") && !text.contains('\\') {
            let read = ReflectConfig::parse("/fuzz/reflect.toml", text);
            read.err().iter().for_each(|problems| placed(problems, text));
        }
        return;
    }
    match Config::of_texts(&texts(text.split("\n%%\n"))) {
        Ok(config) => {
            super::deep();
            let written = config.effective();
            let again = Config::of_texts(&texts(std::iter::once(written.as_str())));
            let again = again.unwrap_or_else(|problems| panic!("{problems}\n{written}"));
            assert_eq!(again.effective(), written);
            assert_eq!(again.tunnels.len(), config.tunnels.len());
            assert!(again.routes == config.routes && again.policy == config.policy && again.rules == config.rules);
            let onions = |config: &Config| config.tunnels.iter().map(|tunnel| tunnel.onion.clone()).collect::<Vec<_>>();
            assert_eq!(onions(&again), onions(&config));
        }
        Err(problems) => placed(&problems, text),
    }
}

fn placed(problems: &Problems, text: &str) {
    let lines = text.split('\n').count();
    assert!(problems.iter().count() > 0);
    for problem in problems.iter() {
        assert!(!problem.message.is_empty());
        if let Some((line, column)) = problem.place {
            assert!((1..=lines).contains(&line) && (1..=text.len() + 1).contains(&column), "{problem}");
        }
    }
}

/// In the notation of postcard, as `src/config/texts.rs` writes them: a folder, files, keys, problems.
fn texts<'a>(files: impl Iterator<Item = &'a str>) -> Texts {
    let mut bytes = Vec::new();
    path(&mut bytes, "/fuzz");
    let files: Vec<&str> = files.collect();
    number(&mut bytes, files.len());
    for (place, text) in files.iter().enumerate() {
        path(&mut bytes, &format!("/fuzz/{place}.toml"));
        put(&mut bytes, text.as_bytes());
    }
    number(&mut bytes, KEYS.len());
    for (place, (name, length)) in KEYS.iter().enumerate() {
        path(&mut bytes, name);
        // It was read.
        number(&mut bytes, 0);
        put(&mut bytes, format!("{:02x}", 0x11 * (place + 1)).repeat(*length).as_bytes());
    }
    number(&mut bytes, 0);
    postcard::from_bytes(&bytes).unwrap()
}

fn path(bytes: &mut Vec<u8>, path: &str) {
    // As Unix has it.
    number(bytes, 0);
    put(bytes, path.as_bytes());
}

fn put(bytes: &mut Vec<u8>, text: &[u8]) {
    number(bytes, text.len());
    bytes.extend_from_slice(text);
}

fn number(bytes: &mut Vec<u8>, mut number: usize) {
    while number > 0x7F {
        bytes.push(u8::try_from(number & 0x7F).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
}
