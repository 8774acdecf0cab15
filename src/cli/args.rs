//! What can be typed. The help texts are the manual: `adit man` prints them as man pages.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::Netns;
use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};

/// Where the daemon's local socket is, unless told otherwise.
pub const SOCKET: &str = "/run/adit/adit.sock";
/// Where its configuration is.
pub const CONFIG: &str = "/etc/adit/adit.toml";

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   the answer is bad news: a checked tunnel is not healthy, an expectation of the demo is not met
  2   the command line makes no sense, or names a tunnel that does not exist
  69  the daemon cannot be reached
  74  a file or a socket failed
  77  not permitted; the message names the capability or group that is missing
  78  the configuration or another input file is wrong; the message names the place";

/// Packet-level health checks for GRE and IPsec tunnels, and steering away from the sick ones.
///
/// adit sends ICMP probes inside each tunnel, judges it healthy, degraded or down, and adds a
/// penalty to the priority of every route over it, so that traffic takes the best way that is left.
/// Try it without any configuration: adit demo
#[derive(Debug, Parser)]
#[command(name = "adit", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Path of the daemon's local socket
    #[arg(long, global = true, env = "ADIT_SOCKET", default_value = SOCKET, value_name = "PATH")]
    pub socket: PathBuf,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground
    ///
    /// Opens its raw sockets (CAP_NET_RAW; CAP_NET_ADMIN for marks; CAP_SYS_ADMIN for tunnels in other
    /// network namespaces), probes every tunnel, keeps the route table and serves the local socket.
    /// Logs to standard error; RUST_LOG chooses how much (default: info). Stops cleanly on SIGTERM and SIGINT.
    Run(Run),
    /// Show adit at work on this machine, without configuration and without root
    ///
    /// Makes network namespaces of its own (inside a user namespace where not root), a far end with three
    /// GRE tunnels and one of ESP, two routes and real probes; breaks a tunnel, shows how traffic leaves it, heals it and
    /// shows the way back. The thresholds are compressed in time, and the screen says so. Nothing is left behind.
    Demo(Demo),
    /// Validate a configuration: every problem with file, line, column and what to write instead
    ///
    /// What is allowed and may yet not be meant is told as a hint on standard error, and changes no exit code.
    Check(Check),
    /// Print a configuration for the tunnels, addresses and routes that the kernel already has
    ///
    /// Knows gre, ip6gre, ipip, sit, ip6tnl, vti, vti6, xfrm, wireguard and tun devices. What is printed loads as it is: comments
    /// say what had to be guessed, what is left out and why. Nothing is changed. Needs no root, but CAP_SYS_ADMIN for another
    /// network namespace. Exit code 1 if there is no tunnel to check.
    Discover(Discover),
    /// Show the tunnels: state, since when, loss, round-trip time, penalty, last failure
    ///
    /// With the name of a tunnel: everything about it, and exit code 1 if it is checked and not healthy.
    Status(Status),
    /// Say why a tunnel has its state, and what must happen before it has another
    Explain(Explain),
    /// Show the route table: base priority, penalty, effective priority, which routes carry traffic, and
    /// what the kernel has of them
    ///
    /// The last column is there if adit writes routes to the kernel: installed; pending, if it has not been asked
    /// yet; waiting, for a device, say; conflict, if somebody else has a route of the same table, prefix and
    /// metric, which adit never touches; refused, with the kernel's reason; not managed, if the route names neither
    /// device nor via.
    Routes(Routes),
    /// Show what happened: transitions, moved routes, local faults
    Events(Events),
    /// Ask for traffic to leave a tunnel, without calling it sick
    Drain(Drain),
    /// Let traffic come back to a drained tunnel
    Undrain(Undrain),
    /// Have the daemon read its configuration again
    ///
    /// What SIGHUP does, but waits for the outcome. A configuration that is wrong is refused whole, with every
    /// problem at its place, and nothing changes. Tunnels that are the same as before are not disturbed: they keep
    /// their state, their samples and their probes under way, and cause no change of a route.
    Reload,
    /// Hand security associations to an ESP tunnel, show them, or begin their sequence numbers
    #[command(subcommand)]
    Sa(Sa),
    /// Run recorded samples through the health rules
    ///
    /// Reads one JSON object a line: {"t": 12.345, "ok": true, "tunnel": "ams-1"}, t in seconds, exact to
    /// the nanosecond and never decreasing within a tunnel; tunnel may be left out. A line {"t": …, "inconclusive": true}
    /// changes nothing. The output of `adit events --json` of a daemon that records (daemon.record in its configuration) can
    /// be replayed as it is: lines of other kinds are skipped, a start begins anew. Where a recording has a gap, which
    /// is told on standard error, the transitions after it may differ from the recorded ones.
    Replay(Replay),
    /// Be a far end: decapsulate, answer requests, route reply-style probes back
    ///
    /// For tests, and for an origin that cannot answer itself. The configuration has the same tunnel
    /// tables as the daemon's, written from this side: local_endpoint is this machine's own. Its fault tables
    /// make it drop, delay, duplicate or corrupt on purpose. Needs CAP_NET_RAW; with CAP_NET_ADMIN it also sees
    /// whether the kernel has an association with an SPI of its own, which it then does not answer on.
    Reflect(Reflect),
    /// The part of the daemon that probes; started by `adit run` only
    #[command(hide = true)]
    Prober,
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual as a man page
    ///
    /// `adit man adit.toml` prints that of the configuration: every key, what it takes, and what holds without it.
    Man {
        /// Which page
        #[arg(value_enum, default_value_t = Page::Adit)]
        page: Page,
        /// Write all pages into this folder instead: one a command, and adit.toml.5
        #[arg(long, value_name = "FOLDER", conflicts_with = "page")]
        dir: Option<PathBuf>,
    },
}

/// The pages of the manual by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// The commands
    Adit,
    /// The configuration
    #[value(name = "adit.toml")]
    Toml,
}

/// `adit run`
#[derive(Debug, Arguments)]
pub struct Run {
    /// Configuration file; conf.d/*.toml beside it is read too if it is named adit.toml
    #[arg(long, default_value = CONFIG, value_name = "FILE")]
    pub config: PathBuf,
    /// Probe and decide, but print the changes of the kernel's routes instead of making them
    #[arg(long)]
    pub dry_run: bool,
}

/// `adit demo`
#[derive(Debug, Arguments)]
pub struct Demo {
    /// Print a line for each thing that happens instead of redrawing a table
    #[arg(long)]
    pub plain: bool,
    /// Print a JSON object a line: events, phases, and the result at the end
    #[arg(long, conflicts_with = "plain")]
    pub json: bool,
    /// How long the whole may take at least, in seconds; below 15 the phases are as short as they can be
    #[arg(long, default_value_t = 15, value_name = "N")]
    pub seconds: u64,
}

/// `adit check`
#[derive(Debug, Arguments)]
pub struct Check {
    /// Configuration file
    #[arg(long, default_value = CONFIG, value_name = "FILE")]
    pub config: PathBuf,
    /// Print the configuration with all defaults filled in
    #[arg(long)]
    pub effective: bool,
    /// The file is a far end's, for adit reflect
    #[arg(long, conflicts_with = "effective")]
    pub reflect: bool,
}

/// `adit discover`
#[derive(Debug, Arguments)]
pub struct Discover {
    /// Look into this network namespace, by name or path
    #[arg(long, value_name = "N", value_parser = Netns::read)]
    pub netns: Option<Netns>,
}

/// `adit status`
#[derive(Debug, Arguments)]
pub struct Status {
    /// Show one tunnel only, in full
    pub tunnel: Option<String>,
    /// Print JSON, as the local socket gives it
    #[arg(long)]
    pub json: bool,
    /// Show it again every second
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
}

/// `adit explain`
#[derive(Debug, Arguments)]
pub struct Explain {
    /// The tunnel
    pub tunnel: String,
    /// Print JSON, as the local socket gives it
    #[arg(long)]
    pub json: bool,
}

/// `adit routes`
#[derive(Debug, Arguments)]
pub struct Routes {
    /// What to show; all routes if left out
    #[command(subcommand)]
    pub get: Option<RoutesCommand>,
    /// Print JSON, as the local socket gives it
    #[arg(long, global = true)]
    pub json: bool,
}

/// `adit routes get`
#[derive(Debug, Subcommand)]
pub enum RoutesCommand {
    /// Show the routes that carry traffic to an address: of the longest prefix that holds it, those with
    /// the lowest effective priority
    Get {
        /// The destination
        destination: IpAddr,
        /// Show the one that a flow with this hash takes: among equals, the hash modulo the sum of the weights decides
        #[arg(long, value_name = "HASH")]
        flow: Option<u64>,
        /// Only in this routing table; otherwise every table that has an answer gives its own
        #[arg(long, value_name = "N")]
        table: Option<u32>,
        /// Only in this network namespace, by the name that the configuration has for it; "" is the one where
        /// adit runs
        #[arg(long, value_name = "NAME")]
        netns: Option<String>,
    },
}

/// `adit events`
#[derive(Debug, Arguments)]
pub struct Events {
    /// Go on and show new events as they happen
    #[arg(long)]
    pub follow: bool,
    /// Print a JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Only events after the one of this number
    #[arg(long, default_value_t = 0, value_name = "ID")]
    pub since: u64,
}

/// `adit drain`
#[derive(Debug, Arguments)]
pub struct Drain {
    /// The tunnel
    pub tunnel: String,
    /// Make it as costly as if it were down; otherwise as if it were degraded
    #[arg(long)]
    pub down: bool,
}

/// `adit undrain`
#[derive(Debug, Arguments)]
pub struct Undrain {
    /// The tunnel
    pub tunnel: String,
}

/// `adit sa`
#[derive(Debug, Subcommand)]
pub enum Sa {
    /// Hand a fresh pair of security associations to a tunnel with keys = "installed"
    ///
    /// The pair is one JSON object:
    /// {"algorithm": "aes256-gcm", "spi_out": "0x1001", "spi_in": "0x2001", "key_out": "…", "key_in": "…"}
    /// with the keys in hexadecimal or Base64: the cipher's key followed by its salt (4 bytes) or by the
    /// authentication key (32 bytes), as the kernel's `ip xfrm` takes them. Optional: "esn" and "replay_window" (else
    /// as configured) and "grace" ("30s"): how long answers by the old pair are still accepted.
    ///
    /// The new pair seals at once, and so does a Linux far router by its newest association. So first give the far
    /// router the inbound association of the new pair, then install the pair here, then give the far router the outbound one.
    ///
    /// Keys stay in memory only. A pair that has been installed before is refused, if it is among the newest 8 of its
    /// tunnel in the record: its sequence numbers, and with them its nonces, have been used.
    Install {
        /// The tunnel
        tunnel: String,
        /// File with the pair, which only its owner may read; - for standard input
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Show SPIs, algorithms, sequence numbers and fingerprints of keys; never a key
    ///
    /// With the name of a tunnel: everything about its pair. What keeps a tunnel from being probed is said below the
    /// table; that is no bad news to this command, whose exit code stays 0.
    Show {
        /// Show one tunnel only, in full
        tunnel: Option<String>,
        /// Print JSON, as the local socket gives it
        #[arg(long)]
        json: bool,
    },
    /// Say that nobody has used the numbers from here on, or that no keys will be installed once more
    ///
    /// For a tunnel with keys = "static" it begins the sequence numbers.
    /// A record that is missing cannot say whether it was lost or never written, so a static pair is
    /// used only after somebody has said that it is new. Without --at the numbers begin where the clock
    /// is: 4 a second since 2026. After a loss name a number above the far router's own
    /// counter (`ip -s xfrm state` there), or change keys and SPIs at both ends.
    ///
    /// For a tunnel with keys = "installed" it is the word that lets fresh keys be installed after a loss of the
    /// record: that none will be installed which were installed before. It holds for the installed keys of all
    /// tunnels, because one record has them all.
    Begin {
        /// The tunnel
        tunnel: String,
        /// The first number to use, for keys = "static" only
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        at: Option<u64>,
    },
}

/// `adit replay`
#[derive(Debug, Arguments)]
pub struct Replay {
    /// File of samples; - for standard input
    pub file: PathBuf,
    /// Take each tunnel's health rules from this configuration; those of its [defaults.health_check] for a tunnel without a
    /// name, or with one that it does not know, which is told on standard error
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print one JSON object for each transition and nothing else
    #[arg(long)]
    pub json: bool,
    /// State that every tunnel begins in
    #[arg(long, value_enum, default_value_t = Initial::Unknown, value_name = "STATE")]
    pub initial: Initial,
    /// Skip and count malformed lines instead of ending at the first
    #[arg(long)]
    pub lenient: bool,
}

/// The states by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Initial {
    /// No verdict yet
    Unknown,
    /// Carries traffic
    Healthy,
    /// Loses some
    Degraded,
    /// Carries nothing
    Down,
}

/// `adit reflect`
#[derive(Debug, Arguments)]
pub struct Reflect {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Say that nobody has used the keys of an ESP tunnel, or none of its sequence numbers from N on; may be
    /// given more than once
    #[arg(long, value_name = "TUNNEL[=N]")]
    pub begin: Vec<String>,
    /// End after so long, such as 90s
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub lasting: Option<Duration>,
}
