//! Writes first inputs for every target into the folder that is named: `cargo run --example seeds -- FOLDER`.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("a folder to write to"));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let to = folder.join(target);
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join(name), bytes).unwrap();
    };
    for (name, packet) in packets(&fixtures) {
        // Raw, its checksums put right, and its tag.
        for mend in [0, 1, 3] {
            let input = [&[mend], packet.as_slice()].concat();
            put("onion", &format!("{name}-{mend}"), &input);
        }
        if let Some(gre) = gre(&packet) {
            put("gre", &name, gre);
        }
    }
    for (name, number, packet) in sealed(&fixtures) {
        put("esp", &format!("{name}-{number}"), &[&[0x20, 64], packet.as_slice()].concat());
        put("esp", &format!("{name}-{number}-udp"), &[&[0x48, 64], packet.as_slice()].concat());
    }
    for choice in (0..6).flat_map(|algorithm| [0, 4, 8, 12].map(|terms| algorithm << 4 | terms)) {
        let inner = [0x45; 60];
        let changed = [&[choice | 1, 64, 5, 0, 0, 9, 0x10, 30, 1], &inner[..]].concat();
        put("esp", &format!("changed-{choice}"), &changed);
        put("esp", &format!("whole-{choice}"), &[&[choice | 1, 32, 5, 0, 0, 9, 0, 30, 0], &inner[..]].concat());
    }
    put("esp", "padded", &[&[0x22, 64], &[0x45; 20][..], &[1, 2, 2, 4]].concat());
    for terms in [3, 7] {
        let steps = [1, 1, 5, -3, 0, 64, -63, -64, 100_000, -1, i32::MAX, i32::MAX, i32::MAX, -70_000];
        let steps: Vec<u8> = steps.into_iter().flat_map(i32::to_be_bytes).collect();
        put("esp", &format!("numbers-{terms}"), &[&[terms, 64], &steps[..]].concat());
    }
}

fn files(folder: &Path) -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

/// The texts of all keys `bytes` of a fixture.
fn bytes(text: &str) -> Vec<Vec<u8>> {
    let values = text.split("bytes = \"\"\"").skip(1).filter_map(|rest| rest.split("\"\"\"").next());
    values.map(hex).collect()
}

fn packets(fixtures: &Path) -> Vec<(String, Vec<u8>)> {
    let files = files(&fixtures.join("packets")).into_iter();
    files.flat_map(|(name, text)| bytes(&text).into_iter().map(move |packet| (name.clone(), packet))).collect()
}

/// What follows the outer header, where that is GRE.
fn gre(packet: &[u8]) -> Option<&[u8]> {
    match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&47) => packet.get(usize::from(packet[0] & 0x0F) * 4..),
        6 if packet.get(6) == Some(&47) => packet.get(40..),
        _ => None,
    }
}

fn sealed(fixtures: &Path) -> Vec<(String, usize, Vec<u8>)> {
    let files = files(&fixtures.join("esp")).into_iter();
    let first = |(name, text): (String, String)| {
        let packets = bytes(&text).into_iter().enumerate().take(2);
        packets.map(|(number, packet)| (name.clone(), number, packet)).collect::<Vec<_>>()
    };
    files.flat_map(first).collect()
}
