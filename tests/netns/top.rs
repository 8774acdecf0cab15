//! `adit top` on a terminal: a real daemon, keys typed through a pseudo-terminal, and the screen as a terminal
//! shows it.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::kit::{PATIENCE, holds_within};
use crate::site::{NOBODY, Running, Site, adit};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("top::a_tunnel_goes_down_and_another_is_drained", a_tunnel_goes_down_and_another_is_drained),
        case("top::a_silent_daemon_is_said_and_heard_again", a_silent_daemon_is_said_and_heard_again),
        case("top::signals_give_the_terminal_back", signals_give_the_terminal_back),
        case("top::it_is_suspended_and_goes_on", it_is_suspended_and_goes_on),
        case("top::colours_only_where_they_are_wanted", colours_only_where_they_are_wanted),
        case("top::where_it_cannot_draw_it_says_so", where_it_cannot_draw_it_says_so),
        case("top::a_drain_that_is_not_permitted_says_who_may", a_drain_that_is_not_permitted_says_who_may)
            .with_two_users(),
    ]
}

/// Bytes as they came, and what a terminal makes of them.
struct Shown {
    parser: vt100::Parser,
    raw: Vec<u8>,
}

/// A program on a terminal of its own.
struct Terminal {
    program: Running,
    keys: Arc<File>,
    /// The program's end, held open: a terminal that nobody has open any more tells nothing.
    line: File,
    shown: Arc<Mutex<Shown>>,
}

const EIGHTY: (u16, u16) = (80, 24);

impl Terminal {
    fn start(program: &Command, size: (u16, u16)) -> Self {
        let mut command = on_terminal(program);
        Self::with(&mut command, size)
    }

    fn with(command: &mut Command, (columns, rows): (u16, u16)) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let line = File::options().read(true).write(true).open(name).unwrap();
        resize(&line, (columns, rows));
        let end = || Stdio::from(line.try_clone().unwrap());
        let program = Running { child: command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap() };
        let shown = Shown { parser: vt100::Parser::new(cells(rows), cells(columns), 0), raw: Vec::new() };
        let terminal = Self { program, keys: Arc::new(File::from(keys)), line, shown: Arc::new(Mutex::new(shown)) };
        terminal.listen();
        terminal
    }

    fn listen(&self) {
        // Held for a moment at a time: what drops the terminal hangs up.
        let (keys, shown) = (Arc::downgrade(&self.keys), Arc::clone(&self.shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Some(keys) = keys.upgrade() {
                let mut asked = [PollFd::new(keys.as_fd(), PollFlags::POLLIN)];
                if poll(&mut asked, 50_u8).is_ok_and(|ready| ready == 0) {
                    continue;
                }
                // An error once the last end of the line is closed.
                let Ok(count @ 1..) = keys.as_ref().read(&mut bytes) else { return };
                let mut shown = shown.lock().unwrap();
                shown.parser.process(&bytes[..count]);
                shown.raw.extend_from_slice(&bytes[..count]);
            }
        });
    }

    fn resize(&self, (columns, rows): (u16, u16)) {
        self.shown.lock().unwrap().parser.screen_mut().set_size(cells(rows), cells(columns));
        resize(&self.line, (columns, rows));
    }

    fn press(&self, keys: &str) {
        self.keys.as_ref().write_all(keys.as_bytes()).unwrap();
    }

    fn lines(&self) -> Vec<String> {
        let shown = self.shown.lock().unwrap();
        let screen = shown.parser.screen();
        let mut lines: Vec<String> =
            screen.rows(0, screen.size().1.get()).map(|line| line.trim_end().to_owned()).collect();
        while lines.pop_if(|line| line.is_empty()).is_some() {}
        lines
    }

    fn sees(&self, what: &str, condition: impl Fn(&[String]) -> bool) {
        let seen = holds_within(PATIENCE, &mut || condition(&self.lines()));
        assert!(seen, "not seen: {what}\n{}", self.lines().join("\n"));
    }

    /// Waits for a sentence, which the terminal may have broken.
    fn reads(&self, sentence: &str) {
        self.sees(sentence, |lines| lines.concat().contains(sentence));
    }

    /// Waits until a line has all of these.
    fn sees_line(&self, parts: &[&str]) {
        self.sees(&parts.join(" … "), |lines| lines.iter().any(|line| parts.iter().all(|part| line.contains(part))));
    }

    /// Whether it is as a shell wants it: its own screen, a cursor, letters echoed and gathered into lines.
    fn is_given_back(&self) -> bool {
        let shown = self.shown.lock().unwrap();
        let screen = shown.parser.screen();
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        let wanted = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        !screen.alternate_screen() && !screen.hide_cursor() && modes.contains(wanted)
    }

    /// Waits for the end of the program, and for all that it has said.
    fn end(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.program.wait();
        self.sees("the terminal, given back", |_| self.is_given_back());
        (status, self.lines())
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

fn resize(line: &File, (ws_col, ws_row): (u16, u16)) {
    tcsetwinsize(line, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// The same program in a session of its own, which its terminal controls.
fn on_terminal(program: &Command) -> Command {
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(program.get_program()).args(program.get_args());
    command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
    command
}

impl Site {
    /// `adit top` of this site's daemon.
    fn top(&self) -> Command {
        let mut command = Command::new(adit());
        command.arg("--socket").arg(self.path("adit.sock")).arg("top");
        command
    }
}

fn a_tunnel_goes_down_and_another_is_drained() {
    let site = Site::new();
    let (_daemon, [ams, _fra]) = site.healthy();
    let top = Terminal::start(&site.top(), EIGHTY);
    top.sees_line(&["2 tunnels", "● 2 healthy"]);
    top.sees_line(&["● ams-1", "healthy"]);
    drop(ams);
    top.sees("ams-1, down, in the first line", |lines| {
        lines.get(3).is_some_and(|line| line.starts_with("✗ ams-1") && line.contains("down"))
    });

    top.press("\r");
    top.sees_line(&["✗ ams-1 is down since"]);
    top.sees_line(&["becomes", "degraded (rule 2)"]);
    top.sees_line(&["route", "10.20.0.0/16", "100 + 1 000 000 = 1 000 100"]);
    top.sees_line(&["ams-1: degraded -> down"]);
    top.sees_line(&["history", "✗✗✗"]);

    // Another one, found by its name.
    top.press("\x1b");
    top.sees_line(&["● fra-1"]);
    top.press("/FRA");
    top.sees_line(&["/FRA", "1 shown"]);
    top.press("\rd");
    top.sees_line(&["Drain fra-1, as costly as degraded?", "y/n"]);
    top.press("n");
    top.sees_line(&["nothing has been changed"]);
    assert_eq!(site.json(&["status", "fra-1", "--json"])["drained"], false);
    top.press("Dy");
    top.sees_line(&["fra-1: drained; measured healthy; penalty 1 000 000"]);
    assert_eq!(site.json(&["status", "fra-1", "--json"])["penalty"], 1_000_000);
    top.sees_line(&["1 drained"]);
    top.press("uy");
    top.sees_line(&["fra-1: not drained; measured healthy; penalty 0"]);

    top.press("g");
    for (size, head) in [((200, 30), "JITTER"), ((40, 10), "LOSS"), (EIGHTY, "PENALTY")] {
        top.resize(size);
        top.sees_line(&["STATE", head]);
        top.sees("a footer in the last line", |lines| {
            lines.len() == usize::from(size.1) && lines.last().is_some_and(|line| line.starts_with("? help"))
        });
    }
    assert!(!top.is_given_back(), "it is in use");
    top.press("q");
    let (status, lines) = top.end();
    assert_eq!((status.code(), lines.join("")), (Some(0), String::new()));
}

fn a_silent_daemon_is_said_and_heard_again() {
    let site = Site::new();
    let (daemon, _far) = site.healthy();
    let top = Terminal::start(&site.top(), EIGHTY);
    top.sees_line(&["● 2 healthy"]);
    daemon.send(Signal::SIGTERM);
    daemon.end();
    top.sees_line(&["no answer from the daemon since"]);
    top.sees_line(&["measured", "ago"]);
    top.sees_line(&["● ams-1", "healthy"]);
    top.press("dy");
    top.sees_line(&["no adit daemon answers on"]);
    let _daemon = site.daemon();
    top.sees("an answer", |lines| !lines.iter().any(|line| line.contains("no answer")));
    top.press("dy");
    top.sees_line(&["ams-1: drained"]);
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));

    // Where nobody answers from the start, it is as with every other command.
    let mut nobody = Command::new(adit());
    nobody.arg("--socket").arg(site.path("nobody.sock")).arg("top");
    let top = Terminal::start(&nobody, EIGHTY);
    top.reads("start one with adit run");
    assert_eq!(top.end().0.code(), Some(69));
}

fn signals_give_the_terminal_back() {
    let site = Site::new();
    let (_daemon, _far) = site.healthy();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let top = Terminal::start(&site.top(), EIGHTY);
        top.sees_line(&["● 2 healthy"]);
        top.program.send(signal);
        assert_eq!(top.end().0.code(), Some(0), "{signal}");
    }
    // The key that would be a signal elsewhere.
    let top = Terminal::start(&site.top(), EIGHTY);
    top.sees_line(&["● 2 healthy"]);
    top.press("\x03");
    assert_eq!(top.end().0.code(), Some(0));
    // A terminal that is gone for good.
    let top = Terminal::start(&site.top(), EIGHTY);
    top.sees_line(&["● 2 healthy"]);
    let Terminal { program, keys, line, .. } = top;
    drop((keys, line));
    let status = program.end();
    assert!(status.code().is_some(), "ended by signal {:?}", status.signal());
}

fn it_is_suspended_and_goes_on() {
    let site = Site::new();
    let (_daemon, _far) = site.healthy();
    let mut shell = Command::new("sh");
    let script = r#""$0" --socket "$1" top; echo suspended; read -r line; fg >/dev/null; echo ended"#;
    shell.args(["-m", "-c", script]).arg(adit()).arg(site.path("adit.sock"));
    let top = Terminal::start(&shell, EIGHTY);
    top.sees_line(&["● 2 healthy"]);
    top.press("\x1a");
    top.sees_line(&["suspended"]);
    top.sees("the shell's terminal", |_| top.is_given_back());
    top.press("\n");
    top.sees_line(&["● ams-1"]);
    top.press("jd");
    top.sees_line(&["Drain fra-1"]);
    top.press("nq");
    top.sees_line(&["ended"]);
    assert_eq!(top.end().0.code(), Some(0));
}

fn colours_only_where_they_are_wanted() {
    let site = Site::new();
    let (_daemon, [ams, _fra]) = site.healthy();
    drop(ams);
    site.await_state("ams-1", "down");
    for (setting, wanted) in [("", true), ("1", false)] {
        let mut command = on_terminal(&site.top());
        command.env("NO_COLOR", setting);
        let top = Terminal::with(&mut command, EIGHTY);
        top.sees_line(&["✗ ams-1", "down"]);
        top.press("\r");
        top.sees_line(&["✗ ams-1 is down"]);
        let raw = top.shown.lock().unwrap().raw.clone();
        assert_eq!(has_colour(&raw), wanted, "{}", String::from_utf8_lossy(&raw));
        top.press("q");
        assert_eq!(top.end().0.code(), Some(0));
    }
    // Without UTF-8 there are signs of ASCII.
    let mut command = on_terminal(&site.top());
    let top = Terminal::with(command.env("LC_ALL", "C"), EIGHTY);
    top.sees_line(&["X ams-1", "down"]);
    top.press("?");
    top.sees_line(&["any key leads back"]);
    assert!(top.shown.lock().unwrap().raw.is_ascii());
}

/// Whether there is an SGR sequence (ECMA-48 section 8.3.117) that sets a colour other than the default.
fn has_colour(raw: &[u8]) -> bool {
    let text = String::from_utf8_lossy(raw);
    let sequences = text.split("\x1b[").skip(1).filter_map(|rest| {
        let end = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
        rest[end..].starts_with('m').then(|| rest[..end].to_owned())
    });
    let is_colour = |number: u32| matches!(number, 30..=38 | 40..=48 | 90..=107);
    let numbers = |sequence: String| sequence.split(';').filter_map(|text| text.parse().ok()).any(is_colour);
    sequences.into_iter().any(numbers)
}

fn where_it_cannot_draw_it_says_so() {
    let site = Site::new();
    let _daemon = site.daemon();
    for term in ["dumb", ""] {
        let mut command = on_terminal(&site.top());
        let top = Terminal::with(command.env("TERM", term), EIGHTY);
        top.reads("adit status --watch");
        assert_eq!(top.end().0.code(), Some(2));
    }
    let refused = site.top().stdin(Stdio::null()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("adit status --json"));
    assert_eq!(refused.stdout, b"");
}

fn a_drain_that_is_not_permitted_says_who_may() {
    let site = Site::new();
    site.set("socket_group = \"nogroup\"");
    let (_daemon, _far) = site.healthy();
    site.open_to_all();
    let mut command = on_terminal(&site.as_nobody(&["top"]));
    let top = Terminal::with(command.current_dir("/").uid(NOBODY).gid(NOBODY), EIGHTY);
    top.sees_line(&["● 2 healthy"]);
    top.press("dy");
    top.sees_line(&["only root, the daemon's user and its admin_group may change"]);
    assert_eq!(site.json(&["status", "ams-1", "--json"])["drained"], false);
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}
