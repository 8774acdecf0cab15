//! What is remembered of the tunnels, on the disk. What it says is [`crate::engine::memory`]'s.
//!
//! In the state folder:
//!
//! | name | is |
//! | --- | --- |
//! | `states`, `windows` | what was known when they were written |
//! | `memory.lock` | held by the daemon that writes them |
//! | `states.new`, `windows.new` | the next ones on their way; left behind by a crash they mean nothing |
//! | `states.damaged-1`, … | files that could not be read, for people; no more than a few |
//!
//! Each file has a thread that writes it, so that probing never waits for a disk, nor a small file for a
//! large one. What waits for a thread has a bound: a file comes to it in pieces.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::fcntl::Flock;

use super::clock::Clock;
use super::durable::{self, Aside, make};
use super::lock;
use crate::engine::Time;
use crate::engine::memory::{self, HEADER, Kind, Memory, Piece, Preface, Record, Seal};

/// Files that could not be read are kept, but no more than so many of a kind.
const SET_ASIDE: u32 = 4;
/// Pieces that may wait for the disk.
const WAITING: usize = 16;
/// How soon a piece is offered again at an end, while the disk is busy.
const SOON: Duration = Duration::from_millis(1);

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How long the disk took, and how many bytes; or why it is not written.
    pub outcome: Result<(Duration, u64), String>,
}

/// What there is in a folder, and the ways to write there.
#[derive(Debug)]
pub struct Opened {
    /// What is remembered.
    pub memory: Memory,
    /// What could not be read, or keeps from writing, for people.
    pub complaints: Vec<String>,
    /// The way to write states.
    pub states: Writer,
    /// The way to write windows.
    pub windows: Writer,
}

/// A step in the writing of a file.
#[derive(Debug)]
pub enum Step {
    /// Another file begins; of one that was on its way nothing is left.
    Begin,
    /// The next bytes. After the last ones a [`Report`] follows.
    Piece(Piece),
}

impl Step {
    /// Whether the file is whole by it.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        matches!(self, Self::Piece(Piece { is_last: true, .. }))
    }
}

/// The way to a thread that writes. It ends when this is dropped and what was asked before is done.
#[derive(Debug)]
pub struct Writer {
    steps: SyncSender<Step>,
    reports: Receiver<Report>,
    /// Files whose reports have not come.
    due: u32,
    thread: JoinHandle<()>,
}

/// Makes the folder if it is missing.
///
/// # Errors
/// It cannot be made.
pub fn prepare(folder: &Path) -> io::Result<()> {
    make(folder)
}

/// Reads what is remembered in a folder, which is made if it is missing, and starts the threads that write
/// there. What cannot be read is set aside, and told; nor does a folder in which nothing can be written, or
/// that another daemon uses, keep anybody from starting: each file is an attempt anew.
///
/// # Errors
/// The system may refuse a thread.
pub fn open(folder: &Path) -> io::Result<Opened> {
    let place = Arc::new(Place { folder: folder.to_owned(), lock: Mutex::new(None) });
    let (mut memory, mut complaints) = (Memory::default(), Vec::new());
    let held = place.await_lock();
    // What another daemon knows is its own.
    let is_ours = held.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::AddrInUse);
    if is_ours && folder.is_dir() {
        memory.states = load(folder, Kind::States, &mut complaints);
        memory.windows = load(folder, Kind::Windows, &mut complaints);
    }
    if let Err(error) = held {
        complaints.push(format!("what is known of the tunnels cannot be written down now: {error}; it is tried again"));
    }
    let [states, windows] = [Kind::States, Kind::Windows].map(|kind| Writer::spawn(kind, Arc::clone(&place)));
    Ok(Opened { memory, complaints, states: states?, windows: windows? })
}

fn load<T: Record>(folder: &Path, kind: Kind, complaints: &mut Vec<String>) -> Option<(Preface, Vec<T>)> {
    let path = folder.join(kind.name());
    let why = match read(kind, &path) {
        Ok(read) => return read,
        Err(why) => why,
    };
    let aside = match set_aside(&path) {
        Ok(copy) => format!("it is kept as {}", copy.display()),
        Err(error) => format!("it could not be set aside: {error}"),
    };
    complaints.push(format!("{} cannot be read: {why}; {aside}, and what it held is forgotten", path.display()));
    None
}

fn read<T: Record>(kind: Kind, path: &Path) -> Result<Option<(Preface, Vec<T>)>, String> {
    let named = |error: io::Error| error.to_string();
    let Some((mut file, length)) = durable::open(path).map_err(named)? else { return Ok(None) };
    let mut bytes = Vec::new();
    (&mut file).take(HEADER as u64).read_to_end(&mut bytes).map_err(named)?;
    memory::examine(kind, &bytes, length).map_err(|damage| damage.to_string())?;
    file.take(length).read_to_end(&mut bytes).map_err(named)?;
    memory::decode(kind, &bytes).map(Some).map_err(|damage| damage.to_string())
}

/// Another name for a file, until somebody has looked at it.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let name = |number| path.with_extension(format!("damaged-{number}"));
    let free = (1..SET_ASIDE).map(name).find(|copy| fs::symlink_metadata(copy).is_err());
    let copy = free.unwrap_or_else(|| name(SET_ASIDE));
    fs::rename(path, &copy)?;
    Ok(copy)
}

impl Writer {
    fn spawn(kind: Kind, place: Arc<Place>) -> io::Result<Self> {
        let (steps, inbox) = mpsc::sync_channel(WAITING);
        let (tell, reports) = mpsc::channel();
        let desk = Desk { kind, place, clock: Clock::start(), under_way: None };
        let thread = thread::Builder::new().name(kind.name().to_owned()).spawn(move || desk.serve(&inbox, &tell))?;
        Ok(Self { steps, reports, due: 0, thread })
    }

    /// Asks for a step; it comes back if too many wait for the disk.
    #[must_use]
    pub fn offer(&mut self, step: Step) -> Option<Step> {
        let is_last = step.is_last();
        match self.steps.try_send(step) {
            Err(TrySendError::Full(step)) => return Some(step),
            // Without the thread there are no reports any more, which says it.
            Ok(()) | Err(TrySendError::Disconnected(_)) => self.due += u32::from(is_last),
        }
        None
    }

    /// A report that is there.
    pub fn report(&mut self) -> Option<Report> {
        if self.due == 0 {
            return None;
        }
        let report = match self.reports.try_recv() {
            Ok(report) => report,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => ended(),
        };
        self.due -= 1;
        Some(report)
    }

    /// Writes a file, and ends: but not later than at a time on this clock. What became of it.
    #[must_use]
    pub fn finish(mut self, clock: &Clock, end: Time, mut piece: impl FnMut() -> Piece) -> Report {
        let late = || Report { outcome: Err("the disk takes too long".to_owned()) };
        let mut step = Step::Begin;
        loop {
            let is_last = step.is_last();
            while let Some(refused) = self.offer(step) {
                if clock.now() >= end {
                    return late();
                }
                thread::sleep(SOON);
                step = refused;
            }
            if is_last {
                break;
            }
            step = Step::Piece(piece());
        }
        let Self { steps, reports, due, thread } = self;
        drop(steps);
        let mut last = late();
        for _ in 0..due {
            last = match reports.recv_timeout(end.since(clock.now())) {
                Ok(report) => report,
                // A thread that waits for its disk is left to itself.
                Err(RecvTimeoutError::Timeout) => return late(),
                Err(RecvTimeoutError::Disconnected) => return ended(),
            };
        }
        // It has nothing to say any more.
        let _ = thread.join();
        last
    }
}

fn ended() -> Report {
    Report { outcome: Err("the thread that writes has ended".to_owned()) }
}

/// The folder, which one daemon writes in.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    lock: Mutex<Option<Flock<fs::File>>>,
}

impl Place {
    /// At the start: whoever has the lock may be about to end.
    fn await_lock(&self) -> io::Result<()> {
        self.hold_by(lock::await_end)
    }

    fn hold(&self) -> io::Result<()> {
        self.hold_by(lock::take)
    }

    fn hold_by(&self, take: impl Fn(&Path, &str, &str) -> io::Result<Flock<fs::File>>) -> io::Result<()> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            let folder = &self.folder;
            make(folder).map_err(|error| durable::named(error, "make the folder", folder))?;
            let taken = format!("another adit already remembers its tunnels in {}", folder.display());
            *lock = Some(take(&folder.join("memory.lock"), "the memory's lock", &taken)?);
        }
        Ok(())
    }
}

/// Whoever writes one of the files.
struct Desk {
    kind: Kind,
    place: Arc<Place>,
    clock: Clock,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    /// Why it has come to nothing, if it has.
    file: io::Result<Aside>,
    seal: Seal,
    bytes: u64,
    took: Duration,
}

impl Desk {
    fn serve(mut self, steps: &Receiver<Step>, tell: &Sender<Report>) {
        for step in steps {
            let begin = self.clock.now();
            match step {
                Step::Begin => self.under_way = Some(self.begin()),
                Step::Piece(Piece { bytes, is_last: false }) => self.add(&bytes),
                Step::Piece(Piece { bytes, is_last: true }) => {
                    self.add(&bytes);
                    let outcome = self.conclude(begin).map_err(|error| error.to_string());
                    // Whoever asked may have gone.
                    let _ = tell.send(Report { outcome });
                    continue;
                }
            }
            let took = self.clock.now().since(begin);
            self.under_way.iter_mut().for_each(|under_way| under_way.took += took);
        }
    }

    fn begin(&mut self) -> UnderWay {
        // Gone before another one of its name is made.
        self.under_way = None;
        let made = self.place.hold().and_then(|()| Aside::begin(self.place.folder.join(self.kind.name())));
        let file = made.and_then(|mut file| file.add(&[0; HEADER]).map(|()| file));
        UnderWay { file, seal: Seal::default(), bytes: HEADER as u64, took: Duration::ZERO }
    }

    fn add(&mut self, bytes: &[u8]) {
        let Some(UnderWay { file, seal, bytes: count, .. }) = &mut self.under_way else { return };
        if let Ok(aside) = file
            && let Err(error) = aside.add(bytes)
        {
            // What was written goes at once.
            *file = Err(error);
        }
        seal.add(bytes);
        *count += bytes.len() as u64;
    }

    fn conclude(&mut self, begin: Time) -> io::Result<(Duration, u64)> {
        let nothing = || io::Error::other("it was never begun");
        let UnderWay { file, seal, bytes, took } = self.under_way.take().ok_or_else(nothing)?;
        file?.put_in_place(&seal.header(self.kind))?;
        Ok((took + self.clock.now().since(begin), bytes))
    }
}
