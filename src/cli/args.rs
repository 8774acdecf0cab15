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
  1   the answer is bad news: a checked tunnel is not healthy, an endpoint not reachable, a leg of a diagnosis
      fails, an expectation of the demo is not met
  2   the command line makes no sense, or names a tunnel or an endpoint that does not exist
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
    /// Print a configuration from a Cloudflare export: tunnels and static routes, as JSON
    ///
    /// Reads answers of Cloudflare's API as they are (GET /accounts/ID/magic/gre_tunnels, …/ipsec_tunnels, …/cf_interconnects,
    /// …/routes): in one file each, one after the other in one file, as a list, or as an object of lists. What is printed
    /// loads as it is: comments say what had to be guessed, what is left out and why. A route belongs to the tunnel in whose
    /// inner subnet its next hop is. Exit code 78 if something is malformed, with its way into the JSON; 1 if there is no tunnel
    /// for this host.
    Import(Import),
    /// Show the tunnels: state, since when, loss, round-trip time, penalty, last failure
    ///
    /// With the name of a tunnel: everything about it, and exit code 1 if it is checked and not healthy.
    Status(Status),
    /// Say why a tunnel has its state, and what must happen before it has another
    Explain(Explain),
    /// Find out which leg of a tunnel fails, and what to change at which end
    ///
    /// Sends more than regular probes do, for some seconds: a bare ping of the far endpoint; every probe style that fits,
    /// with the identifier of regular probes and with fresh ones; and longer and longer packets that must not be fragmented.
    /// Then says in one sentence what fails: this host, the path below the tunnel, GRE or ESP on it, keys or SPIs, the far
    /// router's forwarding or filters, the way back, the MTU. None of it counts as a sample. Only who may change things may
    /// ask for it, for one tunnel at a time. Exit code 1 if a leg fails that matters.
    Diagnose(Diagnose),
    /// Show the route table: base priority, penalty, effective priority, which routes carry traffic, and
    /// what the kernel has of them
    ///
    /// The last column is there if adit writes routes to the kernel: installed; pending, if it has not been asked
    /// yet; waiting, for a device, say; conflict, if somebody else has a route of the same table, prefix and
    /// metric, which adit never touches; refused, with the kernel's reason; not managed, if the route names neither
    /// device nor via.
    Routes(Routes),
    /// Show the endpoints: state, loss, round-trip time, over which route
    ///
    /// An endpoint is an address beyond the far routers, probed in no tunnel over whatever route it takes. It is reachable
    /// if one probe of a round is answered, unreachable if none is and two more are not either, and unknown before the
    /// first round or if its probes cannot leave this host; the reason says which. No tunnel is judged by it, and no
    /// route moves. Loss is that of the last 100 probes. The route is adit's own answer; what routes others have is the
    /// kernel's to say (ip route get). With the name of an endpoint: everything about it, and exit code 1 if it is not
    /// reachable.
    Endpoints(Endpoints),
    /// Show what happened: transitions, moved routes, local faults
    Events(Events),
    /// Show all tunnels on one screen, live
    ///
    /// The worst come first. Keys: arrows or j and k move, Enter opens the pane of a tunnel (round-trip times and
    /// failures, sample by sample; why it has its state and what comes next; its routes; its events), s and S sort,
    /// f filters by state, / searches names, d, D and u drain and undrain after a question, ? shows all keys, q quits.
    /// A state has a colour, a sign and a word. NO_COLOR is honoured; where the locale is not UTF-8, signs are ASCII.
    /// Needs a terminal; for scripts there is `adit status --json`.
    Top,
    /// Ask for traffic to leave a tunnel, without calling it sick
    ///
    /// For maintenance: every route over it costs as much more as if it were degraded (or down), on top of its measured
    /// state, which goes on being measured. It outlives a restart, and ends by `adit undrain`, or by itself when the time is
    /// over that --for or --until says: by this host's wall clock, also if the daemon was stopped meanwhile. A new drain takes
    /// the place of the old one. Status, explain and events show until when, why, and who asked for it.
    Drain(Drain),
    /// Let traffic come back to drained tunnels
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
    /// Try the ways by which people are told
    #[command(subcommand)]
    Notify(Notify),
    /// The part of the daemon that tells people; started by `adit run` only
    #[command(hide = true)]
    Messenger,
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
    /// Say for each tunnel how soon a cut is found, how long the way back takes, and how likely random loss alone makes it
    /// degraded or down; tunnels with the same check stand together
    #[arg(long, conflicts_with_all = ["effective", "reflect"])]
    pub explain_rates: bool,
    /// The round-trip time that --explain-rates takes for granted
    #[arg(long, default_value = "20ms", requires = "explain_rates", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub rtt: Duration,
    /// Print what --explain-rates says as JSON
    #[arg(long, requires = "explain_rates")]
    pub json: bool,
}

/// `adit discover`
#[derive(Debug, Arguments)]
pub struct Discover {
    /// Look into this network namespace, by name or path
    #[arg(long, value_name = "N", value_parser = Netns::read)]
    pub netns: Option<Netns>,
}

/// `adit import`
#[derive(Debug, Arguments)]
pub struct Import {
    /// Files with answers of the API; - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Which end of the tunnels this host is: the customer's router, which has the customer endpoint and the other one of
    /// interface_address; or the one that Cloudflare is in the export
    #[arg(long, value_enum, default_value_t = Side::Customer, value_name = "SIDE")]
    pub side: Side,
    /// This host's outer address: tunnels that end at another one are left out, and those that name no customer endpoint
    /// end here
    #[arg(long, value_name = "ADDRESS")]
    pub endpoint: Option<IpAddr>,
}

/// The ends of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// The customer's router
    Customer,
    /// Cloudflare's place
    Cloudflare,
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

/// `adit diagnose`
#[derive(Debug, Arguments)]
pub struct Diagnose {
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

/// `adit endpoints`
#[derive(Debug, Arguments)]
pub struct Endpoints {
    /// Show one endpoint only, in full
    pub endpoint: Option<String>,
    /// Print JSON, as the local socket gives it
    #[arg(long)]
    pub json: bool,
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
    /// The tunnel, or several
    #[arg(required = true, value_name = "TUNNEL")]
    pub tunnels: Vec<String>,
    /// Make it as costly as if it were down; otherwise as if it were degraded
    #[arg(long)]
    pub down: bool,
    /// End it by itself after so long, such as 2h or 90m
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub lasting: Option<Duration>,
    /// End it by itself at this time, such as 2026-11-29T14:00:00Z (UTC)
    #[arg(long, value_name = "TIME", conflicts_with = "lasting")]
    pub until: Option<String>,
    /// Why, for whoever looks at it: one line of at most 200 bytes
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `adit undrain`
#[derive(Debug, Arguments)]
pub struct Undrain {
    /// The tunnel, or several
    #[arg(required = true, value_name = "TUNNEL")]
    pub tunnels: Vec<String>,
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

/// `adit notify`
#[derive(Debug, Subcommand)]
pub enum Notify {
    /// Send a test message to everybody who is told by a configuration, or to one of them
    ///
    /// Runs the program, or asks the webhook, as the daemon's messenger does, and says what came of it: what the program
    /// said and how it ended, what the webhook answered. The test is made by whoever runs this, not by the daemon, which
    /// need not be there: under systemd the daemon's own walls are narrower (docs/notify.md). Exit code 1 if one of
    /// them was not told.
    Test {
        /// Only the one of this name
        sink: Option<String>,
        /// Configuration file
        #[arg(long, default_value = CONFIG, value_name = "FILE")]
        config: PathBuf,
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
