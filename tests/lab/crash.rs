//! The built program, killed at random moments while it sends by ESP to a router with a replay window.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adit::io::netns;
use adit::wire::esp::Algorithm;
use adit::wire::{Family, esp};
use libtest_mimic::{Failed, Trial};

use crate::counters;
use crate::encapsulation::take_out_of_udp;
use crate::ipsec::{self, Case, Turn, key_files, plain, spi_in, spi_out};
use crate::router::{Addresses, Net, STYLES, addresses};
use crate::two::{PATIENCE, Tap, holds_in_time};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("over_200_kills_no_sequence_number_is_seen_twice_and_none_is_refused", kills)]
}

const KILLS: u64 = 200;
/// Every so many kills, one hits the program before it is known to have sent anything.
const EARLY: u64 = 4;
/// The latest kill after the first packet: some ten packets a tunnel.
const LATEST: Duration = Duration::from_millis(200);

/// One tunnel for each kind of static pair.
fn cases() -> [Case; 3] {
    let case = |algorithm| Case { algorithm, ..plain(STYLES[0]) };
    [
        case(Algorithm::Aes256CbcHmacSha256),
        Case { esn: false, udp: true, ..case(Algorithm::Aes128CbcHmacSha256) },
        Case { outer: Family::V6, inner: Family::V6, ..case(Algorithm::NullHmacSha256) },
    ]
}

fn kills() -> Result<(), Failed> {
    let cases = cases();
    let net = ipsec::router(&cases)?;
    let _encapsulation = take_out_of_udp(&net)?;
    let site = Site::new(&cases)?;
    let mut seen = Seen { tap: Tap::open(&net.far)?, last: BTreeMap::new(), packets: BTreeMap::new() };

    // The keys are new: that is said once, and never again.
    let run = site.run(&net.near)?;
    for number in 1..=cases.len() {
        site.until_done(&["sa", "begin", &format!("t{number}")])?;
    }
    seen.all(cases.len())?;
    drop(run);

    let mut sending = 0;
    for kill in 0..KILLS {
        let (early, before) = (kill % EARLY == 0, seen.count());
        let run = site.run(&net.near)?;
        if !early {
            seen.next()?;
        }
        // An early one dies somewhere between its birth and some packets.
        let limit = if early { 2 * LATEST } else { LATEST };
        let micros = RandomState::new().hash_one(kill) % u64::try_from(limit.as_micros())?;
        seen.pause(Duration::from_micros(micros))?;
        drop(run);
        seen.look()?;
        sending += u64::from(seen.count() > before);
    }

    // Whoever follows goes on as if nothing had been.
    let _run = site.run(&net.near)?;
    for number in 1..=cases.len() {
        site.until_done(&["status", &format!("t{number}")])?;
    }
    opened(&net, &mut seen, cases.len())?;
    println!("lab: {KILLS} kills, {sending} of them while it sent; {} packets, each opened once", seen.count());
    if sending >= KILLS / 2 { Ok(()) } else { Err(format!("only {sending} kills hit a program that sent").into()) }
}

/// The router has opened every packet, and refused none.
fn opened(net: &Net, seen: &mut Seen, tunnels: usize) -> Result<(), Failed> {
    seen.look()?;
    let before = seen.packets.clone();
    let used = counters::associations(net)?;
    seen.look()?;
    for number in 1..=tunnels {
        let spi = spi_out(number, Turn::First);
        let of = |packets: &BTreeMap<u32, u64>| packets.get(&spi).copied().unwrap_or_default();
        let (seen, used) = (of(&before)..=of(&seen.packets), used.get(&spi).copied().unwrap_or_default());
        if used.refused != [0; 3] || !seen.contains(&used.packets) {
            return Err(format!("t{number}: of {seen:?} packets the router opened {used:?}").into());
        }
    }
    counters::none_refused(net)
}

/// What the router's wire has carried.
struct Seen {
    tap: Tap,
    /// The last sequence number, by SPI; the upper half is not in the packet.
    last: BTreeMap<u32, u32>,
    packets: BTreeMap<u32, u64>,
}

impl Seen {
    fn count(&self) -> u64 {
        self.packets.values().sum()
    }

    /// Takes what has come. The wire keeps the order, so no number is the same as one before or less.
    fn look(&mut self) -> Result<(), Failed> {
        while let Some((_, packet)) = self.tap.next()? {
            let Some(esp::Header { spi, sequence }) = sealed(&packet) else { continue };
            if let Some(last) = self.last.insert(spi, sequence)
                && last >= sequence
            {
                return Err(format!("number {sequence} of SPI {spi:#x} after {last}").into());
            }
            *self.packets.entry(spi).or_default() += 1;
        }
        Ok(())
    }

    /// Waits for one more packet.
    fn next(&mut self) -> Result<(), Failed> {
        let before = self.count();
        self.until("a packet", |seen| seen.count() > before)
    }

    /// Waits until every tunnel has sent something.
    fn all(&mut self, tunnels: usize) -> Result<(), Failed> {
        self.until("packets of every tunnel", |seen| seen.packets.len() == tunnels)
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<(), Failed> {
        let mut wrong = None;
        let found = holds_in_time(|| {
            wrong = self.look().err();
            Ok((wrong.is_some() || holds(self)).then_some(()))
        })?;
        match (wrong, found) {
            (Some(wrong), _) => Err(wrong),
            (None, Some(())) => Ok(()),
            (None, None) => Err(format!("{what}: not seen in {PATIENCE:?}").into()),
        }
    }

    /// Lets time pass, and looks on.
    #[expect(clippy::disallowed_methods, reason = "a random moment is a moment of real time")]
    fn pause(&mut self, time: Duration) -> Result<(), Failed> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.look()?;
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
        Ok(())
    }
}

/// The ESP header of an outer packet, bare or in UDP.
fn sealed(packet: &[u8]) -> Option<esp::Header> {
    let (protocol, payload) = match packet.first()? >> 4 {
        4 => (packet.get(9)?, packet.get(20..)?),
        _ => (packet.get(6)?, packet.get(40..)?),
    };
    let payload = match *protocol {
        esp::PROTOCOL => payload,
        esp::udp::PROTOCOL => esp::udp::parse(payload).ok()?,
        _ => return None,
    };
    esp::peek(payload).ok()
}

/// The program, its files, and the commands that a person types.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(cases: &[Case]) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut text = format!(
            "[daemon]\nsocket = \"{}\"\nstate_dir = \"{}\"\n[defaults.health_check]\ninterval = \"20ms\"\n",
            path("adit.sock"),
            path("state")
        );
        for (number, case) in (1..).zip(cases) {
            let names = ["out", "in"].map(|way| path(&format!("t{number}.{way}")));
            for (name, key) in names.iter().zip(key_files(number, case)) {
                fs::write(name, key)?;
                fs::set_permissions(name, fs::Permissions::from_mode(0o600))?;
            }
            text.push_str(&tunnel(number, case, &names));
        }
        fs::write(folder.path().join("adit.toml"), text)?;
        Ok(Self { folder })
    }

    /// Starts the program in a namespace.
    fn run(&self, namespace: &File) -> io::Result<Run> {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut command = Command::new(program());
        command.arg("run").arg("--config").arg(self.folder.path().join("adit.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // A child is born into the namespace of the thread that makes it.
        Ok(Run { child: netns::within(Some(namespace), || command.spawn())? })
    }

    /// Gives the program a command until it succeeds.
    fn until_done(&self, arguments: &[&str]) -> Result<(), Failed> {
        let mut said = String::new();
        let done = holds_in_time(|| {
            let mut command = Command::new(program());
            let output = command.arg("--socket").arg(self.folder.path().join("adit.sock")).args(arguments).output()?;
            said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            Ok(output.status.success().then_some(()))
        })?;
        let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        done.ok_or_else(|| format!("{arguments:?}: {said}\n{}", log()).into())
    }
}

/// The program under test: cargo's, or the one that `ADIT_BIN` names.
fn program() -> PathBuf {
    std::env::var_os("ADIT_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_adit")), PathBuf::from)
}

/// A running program; it ends by SIGKILL.
struct Run {
    child: Child,
}

impl Drop for Run {
    fn drop(&mut self) {
        // It has not ended before: the packets say so.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tunnel in adit's configuration.
fn tunnel(number: usize, case: &Case, [key_out, key_in]: &[String; 2]) -> String {
    let Addresses { outer: [p, o], inner: [t0, _], prefix } =
        addresses(number, case.outer, case.inner, case.style.direction);
    format!(
        "[[tunnel]]\nname = \"t{number}\"\nencapsulation = \"esp\"\nlocal_endpoint = \"{p}\"\n\
         remote_endpoint = \"{o}\"\ninterface_address = \"{t0}/{prefix}\"\n\
         [tunnel.esp]\nkeys = \"static\"\nalgorithm = \"{}\"\nspi_out = {}\nspi_in = {}\n\
         key_out_file = \"{key_out}\"\nkey_in_file = \"{key_in}\"\nesn = {}\nudp_encapsulation = {}\n",
        case.algorithm.name(),
        spi_out(number, Turn::First),
        spi_in(number, Turn::First),
        case.esn,
        case.udp
    )
}
