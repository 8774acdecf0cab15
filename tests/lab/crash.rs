//! The built program is killed 200 times while it sends ESP to the kernel's IPsec, whose replay window
//! takes no number twice.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use adit::engine::numbers::BLOCK;
use adit::io::netns;
use adit::wire::Family;
use adit::wire::esp::Algorithm;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::counters::{self, Used};
use crate::encapsulation::take_out_of_udp;
use crate::ipsec::{self, Case, Turn, key_files, plain};
use crate::kills::{Killer, Marks, Tally, Victim, Wire, now};
use crate::router::{Addresses, Net, STYLES, addresses};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("over_200_kills_no_number_is_used_twice_and_linux_refuses_none", kills)]
}

const KILLS: u32 = 200;
/// How long the last life lasts at least: were its packets refused, it would be down by then.
const LAST: Duration = Duration::from_secs(7);
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// One tunnel for each kind of static pair. The first has extended numbers, whose high half is reached amid
/// the kills; the second has none.
fn cases() -> [Case; 3] {
    let case = |algorithm| Case { algorithm, ..plain(STYLES[0]) };
    [
        case(Algorithm::Aes256CbcHmacSha256),
        Case { esn: false, udp: true, ..case(Algorithm::Aes128CbcHmacSha256) },
        Case { outer: Family::V6, inner: Family::V6, ..case(Algorithm::NullHmacSha256) },
    ]
}

/// The tunnels' numbers.
const TUNNELS: [usize; 3] = [1, 2, 3];

fn kills() -> Result<(), Failed> {
    let site = Site::new()?;
    let _encapsulation = take_out_of_udp(&site.net)?;
    let begin = now();
    let (mut killer, first) = first_life(&site)?;
    let killed = killer.kill(KILLS).map_err(Failed::from).and_then(|()| last_life(&site, &mut killer));
    let (tally, seconds) = (&killer.tally, begin.elapsed().as_secs());
    println!("lab: {KILLS} kills in {seconds} s: {tally}");
    let faults = [killed, tally.verdict().map_err(Failed::from), none_refused(&site, tally), enough(tally, &first)];
    let faults = faults.into_iter().filter_map(Result::err);
    let faults: Vec<String> = faults.filter_map(|failed| failed.message().map(str::to_owned)).collect();
    if faults.is_empty() { Ok(()) } else { Err(format!("{}\n{}", faults.join("\n"), site.log()).into()) }
}

/// That so much was seen that a fault would have shown.
fn enough(tally: &Tally, first: &Marks) -> Result<(), Failed> {
    let packets: u64 = TUNNELS.map(|number| tally.packets(spi_out(number))).iter().sum();
    let crossed = first[&spi_out(1)] < 1 << 32 && tally.highest(spi_out(1)) >= 1 << 32;
    for (what, enough) in [
        ("lives that sent", tally.speaking() >= KILLS * 3 / 4),
        ("packets", packets >= u64::from(KILLS) * 5),
        ("numbers to reach the high half", crossed),
    ] {
        enough.then_some(()).ok_or_else(|| format!("too few {what} to say anything"))?;
    }
    Ok(())
}

/// The operator's word, and a first life until all is well.
fn first_life(site: &Site) -> Result<(Killer<'_>, Marks), Failed> {
    let wire = Wire::tap(&site.net.far)?;
    let victim = Victim(site.start()?);
    let is_up = || site.adit(&["sa", "show"]).is_ok_and(|output| output.status.success());
    site.until("up", is_up, &mut || {
        std::thread::sleep(PAUSE);
        Ok(())
    })?;
    let at = ((1 << 32) - u64::from(KILLS / 2) * BLOCK).to_string();
    let first = [site.begin("t1", &["--at", &at])?, site.begin("t2", &[])?, site.begin("t3", &[])?];
    let first: Marks = TUNNELS.map(spi_out).into_iter().zip(first).collect();
    let tally = Tally::new(&TUNNELS.map(|number| (spi_out(number), spi_in(number), first[&spi_out(number)])));
    let mut killer = Killer { wire, tally, state_dir: site.path("state"), start: Box::new(|| site.start()) };
    site.all_are(&["healthy"], &mut killer)?;
    killer.end(victim, &first)?;
    Ok((killer, first))
}

/// The tunnels are found well, and never were down.
fn last_life(site: &Site, killer: &mut Killer<'_>) -> Result<(), Failed> {
    let before = killer.marks()?;
    let victim = Victim(site.start()?);
    killer.watch(now() + LAST)?;
    // One answer may have been late.
    site.all_are(&["healthy", "degraded"], killer)?;
    let events = site.say(&["events", "--json"])?;
    let events: Vec<Value> = events.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let entered = |event: &&Value| event["kind"] == "transition";
    let entered: Vec<&Value> = events.iter().filter(entered).map(|event| &event["to"]).collect();
    if entered.iter().any(|&to| to == "down") {
        return Err(format!("after a restart the tunnels entered {entered:?}").into());
    }
    Ok(killer.end(victim, &before)?)
}

/// Linux has opened and answered all that was seen.
fn none_refused(site: &Site, tally: &Tally) -> Result<(), Failed> {
    let mut opened = counters::associations(&site.net)?;
    let refused = counters::refused(&site.net)?;
    let ours = TUNNELS.map(spi_out);
    opened.retain(|spi, _| ours.contains(spi));
    let seen = ours.map(|spi| (spi, Used { packets: tally.packets(spi), refused: [0; 3] }));
    if refused.is_empty() && opened == BTreeMap::from(seen) && tally.all_answered() {
        return Ok(());
    }
    Err(format!("the router refused {refused:?}; opened {opened:?}").into())
}

/// A router, and what the program keeps.
struct Site {
    net: Net,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Result<Self, Failed> {
        let cases = cases();
        let site = Self { net: ipsec::router(&cases)?, folder: tempfile::tempdir()? };
        let mut text = format!(
            "[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"{}\"\n[defaults.health_check]\ninterval = \"20ms\"\n\
             timeout = \"2s\"\ndown_window = \"5s\"\n",
            site.path("state").display()
        );
        for (number, case) in (1..).zip(&cases) {
            let [key_out, key_in] = key_files(number, case);
            site.write(&format!("{number}.out"), &key_out)?;
            site.write(&format!("{number}.in"), &key_in)?;
            text.push_str(&site.tunnel(number, case));
        }
        site.write("adit.conf", &text)?;
        Ok(site)
    }

    fn tunnel(&self, number: usize, case: &Case) -> String {
        let Addresses { outer: [p, o], inner: [t0, _], prefix } =
            addresses(number, case.outer, case.inner, case.style.direction);
        let file = |way| self.path(&format!("{number}.{way}")).display().to_string();
        format!(
            "[[tunnel]]\nname = \"t{number}\"\nencapsulation = \"esp\"\nlocal_endpoint = \"{p}\"\n\
             remote_endpoint = \"{o}\"\ninterface_address = \"{t0}/{prefix}\"\n[tunnel.esp]\nkeys = \"static\"\n\
             algorithm = \"{}\"\nesn = {}\nudp_encapsulation = {}\nspi_out = {}\nspi_in = {}\nkey_out_file = \"{}\"\nkey_in_file = \"{}\"\n",
            case.algorithm.name(),
            case.esn,
            case.udp,
            spi_out(number),
            spi_in(number),
            file("out"),
            file("in")
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// As an operator's files are: for nobody else.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.path(name), text)?;
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600))
    }

    fn start(&self) -> io::Result<Child> {
        let log = File::options().create(true).append(true).mode(0o600).open(self.path("log"))?;
        let mut command = Command::new(program());
        command.args(["run", "--config"]).arg(self.path("adit.conf")).stdin(Stdio::null()).stdout(Stdio::null());
        // A child is born into the namespace of the thread that makes it.
        netns::within(Some(&self.net.near), || command.stderr(log).spawn())
    }

    /// The end of what the program has said.
    fn log(&self) -> String {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    fn adit(&self, arguments: &[&str]) -> io::Result<Output> {
        let mut command = Command::new(program());
        command.arg("--socket").arg(self.path("adit.sock")).args(arguments).output()
    }

    fn say(&self, arguments: &[&str]) -> Result<String, Failed> {
        let Output { status, stdout, stderr } = self.adit(arguments)?;
        let stdout = String::from_utf8_lossy(&stdout).into_owned();
        if status.success() {
            return Ok(stdout);
        }
        Err(format!("adit {arguments:?}: {status}: {stdout}{}", String::from_utf8_lossy(&stderr)).into())
    }

    /// Begins a pair's numbers: the first one.
    fn begin(&self, name: &str, more: &[&str]) -> Result<u64, Failed> {
        let said = self.say(&[&["sa", "begin", name], more].concat())?;
        let number = said.split_whitespace().last().and_then(|word| word.parse().ok());
        number.ok_or_else(|| format!("no number: {said}").into())
    }

    fn all_are(&self, good: &[&str], killer: &mut Killer<'_>) -> Result<(), Failed> {
        let state = |number: &usize| {
            let shown =
                self.adit(&["status", &format!("t{number}"), "--json"]).map(|output| output.stdout).unwrap_or_default();
            serde_json::from_slice::<Value>(&shown).unwrap_or_default()["state"].clone()
        };
        let all = || TUNNELS.iter().map(state).all(|state| good.iter().any(|&good| state == good));
        self.until(good[0], all, &mut || Ok(killer.watch(now() + PAUSE)?))
    }

    fn until(
        &self,
        what: &str,
        holds: impl Fn() -> bool,
        pause: &mut dyn FnMut() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let end = now() + PATIENCE;
        while !holds() {
            if now() > end {
                return Err(format!("not {what} in {PATIENCE:?}: {}", self.log()).into());
            }
            pause()?;
        }
        Ok(())
    }
}

/// The program under test: cargo's, or the one that `ADIT_BIN` names.
fn program() -> PathBuf {
    std::env::var_os("ADIT_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_adit")), PathBuf::from)
}

fn spi_out(number: usize) -> u32 {
    ipsec::spi_out(number, Turn::First)
}

fn spi_in(number: usize) -> u32 {
    ipsec::spi_in(number, Turn::First)
}
