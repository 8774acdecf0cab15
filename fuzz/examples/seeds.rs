//! Writes first inputs for every target into the folder that is named: `cargo run --example seeds -- FOLDER`.

#[path = "../entries/mod.rs"]
mod entries;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adit::engine::memory::Kind;
use adit::reflect::plan::Fault;
use adit::wire::payload::{Fields, Key, Secret};
use adit::wire::{Stamp, Template};
use entries::bench;

fn main() {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("a folder to write to"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut number = 0;
    let mut put = |target: &str, parts: &[&[u8]]| {
        let to = folder.join(target);
        fs::create_dir_all(&to).unwrap();
        number += 1;
        fs::write(to.join(number.to_string()), parts.concat()).unwrap();
    };
    wire(&root.join("fixtures"), &mut put);
    config(&root.join("fixtures/config"), &mut put);
    imports(&root.join("fixtures/import"), &mut put);
    netlink(&root.join("src/io/fib/recorded.rs"), &mut put);
    memory(&mut put);
    reflect(&mut put);
    texts(&root, &mut put);
}

type Put<'a> = &'a mut dyn FnMut(&str, &[&[u8]]);

fn wire(fixtures: &Path, put: Put<'_>) {
    for packet in packets(fixtures) {
        // Raw, its checksums put right, and its tag.
        [0, 1, 3].iter().for_each(|&mend| put("onion", &[&[mend], &packet]));
        [0, 1].iter().for_each(|&mend| put("reflect", &[&[mend], &packet]));
        if let Some(gre) = gre(&packet) {
            put("gre", &[gre]);
        }
    }
    for packet in sealed(fixtures) {
        put("esp", &[&[0x20, 64], &packet]);
        put("esp", &[&[0x48, 64], &packet]);
    }
    for choice in (0..6).flat_map(|algorithm| [0, 4, 8, 12].map(|terms| algorithm << 4 | terms)) {
        put("esp", &[&[choice | 1, 64, 5, 0, 0, 9, 0x10, 30, 1], &[0x45; 60]]);
        put("esp", &[&[choice | 1, 32, 5, 0, 0, 9, 0, 30, 0], &[0x45; 60]]);
    }
    put("esp", &[&[0x22, 64], &[0x45; 20], &[1, 2, 2, 4]]);
    for terms in [3, 7] {
        let steps = [1, 1, 5, -3, 0, 64, -63, -64, 100_000, -1, i32::MAX, i32::MAX, i32::MAX, -70_000];
        put("esp", &[&[terms, 64], &steps.map(i32::to_be_bytes).concat()]);
    }
}

fn config(fixtures: &Path, put: Put<'_>) {
    for (name, text) in ["ok", "bad"].iter().flat_map(|folder| files(&fixtures.join(folder))) {
        let mut text = text.replace("../keys/mark.key", "/k/16");
        for length in ["32", "48", "64"] {
            text = text.replace(&format!("../keys/esp-{length}.out"), &format!("/k/{length}"));
            text = text.replace(&format!("../keys/esp-{length}.in"), &format!("/k/{length}b"));
        }
        put("config", &[&[u8::from(name.starts_with("reflect"))], text.as_bytes()]);
    }
}

/// Each export whole, from either side, and each line of it left out.
fn imports(fixtures: &Path, put: Put<'_>) {
    for entry in fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(entry).unwrap();
        (0..4).for_each(|choice| put("import", &[&[choice], text.as_bytes()]));
        let lines: Vec<&str> = text.lines().collect();
        for left in 0..lines.len() {
            put("import", &[&[0], [&lines[..left], &lines[left + 1..]].concat().join("\n").as_bytes()]);
        }
    }
}

/// Each recorded message alone, as every kind, and all of them in one datagram.
fn netlink(recorded: &Path, put: Put<'_>) {
    let source = fs::read_to_string(recorded).unwrap().replace("\\\n", "");
    let literals = source.split('"').skip(1).step_by(2).map(|literal| literal.replace(' ', ""));
    let messages = literals.filter(|text| text.len() > 30 && text.bytes().all(|digit| digit.is_ascii_hexdigit()));
    for (kind, choice) in (0..16).flat_map(|kind| (0..3).map(move |choice| (kind, choice))) {
        let all: Vec<Vec<u8>> = messages.clone().map(|text| hex(&text)).collect();
        all.iter().for_each(|message| put("netlink", &[&[0x80 | kind << 3 | choice], message]));
    }
    put("netlink", &[&[0x80 | 2 << 3 | 3], &[7; 224], &[0x4B; 101]]);
    let numbers = [24_u16, 104, 32, 16];
    let mut datagram = Vec::new();
    for (message, number) in messages.map(|text| hex(&text)).zip(numbers.iter().cycle()) {
        let length = u32::try_from(16 + message.len()).unwrap().to_ne_bytes();
        datagram.extend([&length[..], &number.to_ne_bytes(), &[2, 0, 9, 0, 0, 0, 0, 0, 0, 0], &message].concat());
        datagram.resize(datagram.len().next_multiple_of(4), 0);
    }
    (0..4).for_each(|choice| put("netlink", &[&[choice], &datagram]));
}

fn memory(put: Put<'_>) {
    for (delay, turns, drop) in [(0, 60, 0), (30, 90, 0), (600, 60, 0), (10, 120, 300_000)] {
        let fault =
            Fault { delay: Duration::from_millis(delay), drop: adit::engine::health::Ratio(drop), ..Fault::default() };
        let mut engine = bench::engine();
        let now = bench::turns(&mut engine, vec![fault], turns);
        let [states, windows] = [Kind::States, Kind::Windows].map(|kind| engine.written(kind, now, true).bytes);
        for (choice, from) in [(0, 0), (0x81, 50), (0x83, 50), (0xCB, 50)] {
            let length = u16::try_from(states.len() - from).unwrap().to_be_bytes();
            put("memory", &[&[choice], &length, &states[from..], &windows[from..]]);
        }
        put("memory", &[&[0, 0, 0], &states]);
    }
}

/// Probes for the far ends of the bench, and what they may become on their way.
fn reflect(put: Put<'_>) {
    let secret = Secret { key: Key::new([3; 16]), epoch: 5 };
    for (tunnel, size) in bench::tunnels().into_iter().take(2).flat_map(|tunnel| [(tunnel.clone(), 72), (tunnel, 200)])
    {
        let mut onion = tunnel.onion;
        onion.size = size;
        let mut buffer = [0; 512];
        let stamp = Stamp { fields: Fields { tunnel: 0, sequence: 1, sent: 2 }, identifier: 3, ip_id: 4 };
        let length = Template::new(&onion).emit(&stamp, &secret, None, &mut buffer).unwrap();
        [0, 1, 4, 8, 16, 32, 36].iter().for_each(|&choice| put("reflect", &[&[choice], &buffer[..length]]));
        put("reflect", &[&[1], &buffer[..length - 20]]);
    }
}

fn texts(root: &Path, put: Put<'_>) {
    let golden = fs::read_to_string(root.join("tests/ledger/golden.txt")).unwrap();
    put("ledger", &[&[0], golden.as_bytes()]);
    let bare = golden.lines().map(|line| match (line.split_once(" check="), line.rsplit_once(' ')) {
        (Some((body, _)), _) => body,
        (None, Some((body, _))) if !line.starts_with('#') => body,
        _ => line,
    });
    let bare: Vec<&str> = bare.collect();
    for left in 0..bare.len() {
        let lines: Vec<&str> =
            bare.iter().enumerate().filter(|(at, _)| *at != left || left == 0).map(|(_, line)| *line).collect();
        put("ledger", &[&[1], lines.join("\n").as_bytes()]);
    }
    for initial in 0..4 {
        put("replay", &[&[initial], RECORDING.as_bytes()]);
    }
    for line in RECORDING.lines() {
        put("replay", &[&[1], line.as_bytes()]);
    }
    for (client, request) in REQUESTS.iter().flat_map(|request| [(0, request), (1, request)]) {
        put("socket", &[&[client], request.as_bytes()]);
    }
    let pair = format!(
        r#"{{"algorithm":"aes128-gcm","spi_out":"0x1001","spi_in":8193,"key_out":"{}","key_in":"{}","esn":true,"grace":"5s"}}"#,
        "11".repeat(20),
        "22".repeat(20)
    );
    let head = format!("POST /v1/tunnels/esp-1/sa HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", pair.len());
    put("socket", &[&[0], head.as_bytes(), pair.as_bytes()]);
    let chunks =
        "POST /v1/tunnels/esp-1/sa HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n0\r\n\r\n";
    put("socket", &[&[0], chunks.as_bytes()]);
}

const RECORDING: &str = r#"{"t":0,"ok":true,"rtt_us":1200,"tunnel":"ams-1"}
{"t":0.5,"ok":false,"tunnel":"ams-1"}
{"t":0.6,"ok":false,"tunnel":"ams-1"}
{"t":0.7,"ok":false,"tunnel":"ams-1"}
{"t":1e1,"inconclusive":true,"tunnel":"ams-1"}
{"kind":"gap"}
{"kind":"obstacle","tunnel":"ams-1"}
{"t":11.000000001,"ok":true}
{"t":12,"ok":true,"kind":"sample"}
{"t":13,"ok":true}
{"kind":"start"}
{"t":2.5E3,"ok":false}
{"t":2500.1,"ok":false}
{"t":2500.2,"ok":false}
{"t":2500.3,"ok":true}
{"t":2500.4,"ok":true}
{"t":2500.5,"ok":true}
"#;

const REQUESTS: [&str; 20] = [
    "GET /v1/tunnels HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/tunnels/ams-1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/tunnels/ams-2 HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/tunnels/%61ms-1/explain HTTP/1.1\r\nhost: x\r\n\r\n",
    "POST /v1/tunnels/ams-1/drain?down=true HTTP/1.1\r\nhost: x\r\n\r\n",
    "POST /v1/tunnels/fra-1/drain HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    "POST /v1/tunnels/ams-1/undrain HTTP/1.0\r\n\r\n",
    "GET /v1/tunnels/esp-1/sa HTTP/1.1\r\nhost: x\r\n\r\n",
    "POST /v1/tunnels/esp-1/sa/begin?at=7 HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/sa HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/routes HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/routes/lookup?dst=10.9.1.1&flow=7&table=254&netns=a HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/routes/lookup?dst=2001:db8::1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/events?since=0 HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/events?since=1&follow=true HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /v1/healthz HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
    "HEAD /v1/openapi.json HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    "PUT /v1/tunnels HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\nabc",
];

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

fn packets(fixtures: &Path) -> Vec<Vec<u8>> {
    files(&fixtures.join("packets")).into_iter().flat_map(|(_, text)| bytes(&text)).collect()
}

/// What follows the outer header, where that is GRE.
fn gre(packet: &[u8]) -> Option<&[u8]> {
    match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&47) => packet.get(usize::from(packet[0] & 0x0F) * 4..),
        6 if packet.get(6) == Some(&47) => packet.get(40..),
        _ => None,
    }
}

fn sealed(fixtures: &Path) -> Vec<Vec<u8>> {
    files(&fixtures.join("esp")).into_iter().flat_map(|(_, text)| bytes(&text).into_iter().take(2)).collect()
}
