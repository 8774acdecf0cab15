//! The thread that owns the record and writes it, so that probing never waits for a disk.
//!
//! Everything that waits is written at once. After a write the clerk lets some time pass in which more
//! may come together: nine times as long as the write took. So with one tunnel numbers are reserved at
//! once, and with a hundred thousand the disk is busy with them a tenth of the time.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::Ledger;
use crate::engine::Time;
use crate::engine::ledger::{Begin, BeginError, Begun, Entry, Fingerprint, Kind, Lost, NotReserved};
use crate::io::clock::Clock;

/// A pause is so many times as long as the write before it.
const REST: u32 = 9;
/// The longest pause: at the shortest interval half a block of numbers lasts 50 s.
const LONGEST: Duration = Duration::from_secs(2);
/// The pause after a write that failed, and would fail again at once.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What has become of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It is durable.
    Reserved {
        /// The association.
        fingerprint: Fingerprint,
        /// Every number below may be used.
        mark: u64,
    },
    /// It is not.
    Failed {
        /// The association.
        fingerprint: Fingerprint,
        /// Whether to try again, and why.
        reason: NotReserved,
    },
}

enum Request {
    Reserve(Fingerprint, u64),
    Raise(Fingerprint, u64, Answer<(), NotReserved>),
    Begin(Begin, Answer<Begun, BeginError>),
    AcceptGaps(Answer<(), NotReserved>),
    Mark(Fingerprint, Answer<u64, Lost>),
    Entries(Answer<Vec<Entry>, Lost>),
}

/// A mark that is to be made durable, and who waits for an answer.
type Mark = (Fingerprint, u64, Option<Answer<(), NotReserved>>);

type Answer<T, E> = oneshot::Sender<Result<T, E>>;

/// The way to the thread that owns the record. It ends, and lets the record go, when this is dropped
/// and what was asked before is done.
///
/// No method blocks. The queues have no bound of their own: an association has one reservation under
/// way at most ([`crate::engine::numbers::Numbers::wants`]), and the rest is what people ask.
#[derive(Debug)]
pub struct Clerk {
    recorder: Recorder,
    reports: UnboundedReceiver<Report>,
    thread: JoinHandle<()>,
}

/// Hands the record to a thread of its own.
///
/// # Errors
/// The system may refuse another thread.
pub fn spawn(ledger: Ledger) -> std::io::Result<Clerk> {
    let (requests, inbox) = mpsc::channel();
    let (outbox, reports) = unbounded_channel();
    let thread = thread::Builder::new().name("ledger".to_owned()).spawn(move || serve(ledger, &inbox, outbox))?;
    Ok(Clerk { recorder: Recorder { requests }, reports, thread })
}

/// The way to ask for something to be written down; as many as like may have one.
#[derive(Debug, Clone)]
pub struct Recorder {
    requests: Sender<Request>,
}

impl Clerk {
    /// Asks for a mark to be made durable; a [`Report`] follows.
    pub fn reserve(&self, fingerprint: Fingerprint, mark: u64) {
        self.recorder.ask(Request::Reserve(fingerprint, mark));
    }

    /// A way to ask for others. The thread does not end before the last one is dropped.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The next report; `None` for ever if the thread has ended, which it does not by itself. May be
    /// dropped at any point of waiting.
    pub async fn report(&mut self) -> Option<Report> {
        self.reports.recv().await
    }

    /// Drops this and waits until the record is free for another owner.
    pub fn stop(self) {
        let Self { recorder, reports, thread } = self;
        drop((recorder, reports));
        // It has nothing to say, even if it has panicked.
        let _ = thread.join();
    }
}

impl Recorder {
    /// Begins an association ([`Ledger::begin`]). Like all answers, this one has an error for want of
    /// the thread.
    #[must_use]
    pub fn begin(&self, begin: Begin) -> oneshot::Receiver<Result<Begun, BeginError>> {
        self.question(|answer| Request::Begin(begin, answer))
    }

    /// An operator's word ([`Ledger::accept_gaps`]).
    #[must_use]
    pub fn accept_gaps(&self) -> oneshot::Receiver<Result<(), NotReserved>> {
        self.question(Request::AcceptGaps)
    }

    /// The mark of an association ([`Ledger::mark`]).
    #[must_use]
    pub fn mark(&self, fingerprint: Fingerprint) -> oneshot::Receiver<Result<u64, Lost>> {
        self.question(|answer| Request::Mark(fingerprint, answer))
    }

    /// Makes a mark durable ([`Ledger::reserve`]), with an answer instead of a report.
    #[must_use]
    pub fn raise(&self, fingerprint: Fingerprint, mark: u64) -> oneshot::Receiver<Result<(), NotReserved>> {
        self.question(|answer| Request::Raise(fingerprint, mark, answer))
    }

    /// Everything that is known ([`Ledger::entries`]).
    #[must_use]
    pub fn entries(&self) -> oneshot::Receiver<Result<Vec<Entry>, Lost>> {
        self.question(Request::Entries)
    }

    fn question<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> oneshot::Receiver<T> {
        let (answer, wait) = oneshot::channel();
        self.ask(request(answer));
        wait
    }

    fn ask(&self, request: Request) {
        // Without the thread the reports end, and every answer is an error: that says it.
        let _ = self.requests.send(request);
    }
}

fn serve(ledger: Ledger, requests: &Receiver<Request>, reports: UnboundedSender<Report>) {
    let clock = Clock::start();
    let mut desk = Desk { ledger, reports, marks: Vec::new(), begins: Vec::new(), gaps: Vec::new() };
    let mut free = Time::ZERO;
    loop {
        let request = if desk.is_empty() {
            requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            requests.recv_timeout(free.since(clock.now()))
        };
        match request {
            Ok(request) => desk.take(request),
            Err(RecvTimeoutError::Timeout) => {
                let begin = clock.now();
                let least = if desk.write() { Duration::ZERO } else { AFTER_FAILURE };
                let end = clock.now();
                free = end + (end.since(begin) * REST).min(LONGEST).max(least);
            }
            Err(RecvTimeoutError::Disconnected) => {
                desk.write();
                return;
            }
        }
    }
}

/// What waits to be written, and the record that it will be written to. Whoever has asked may have
/// gone; then nobody misses the answer.
struct Desk {
    ledger: Ledger,
    reports: UnboundedSender<Report>,
    /// With whoever waits for an answer; to the others a report is made.
    marks: Vec<Mark>,
    begins: Vec<(Begin, Answer<Begun, BeginError>)>,
    gaps: Vec<Answer<(), NotReserved>>,
}

impl Desk {
    const fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.begins.is_empty() && self.gaps.is_empty()
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Reserve(fingerprint, mark) => self.marks.push((fingerprint, mark, None)),
            Request::Raise(fingerprint, mark, answer) => self.marks.push((fingerprint, mark, Some(answer))),
            Request::Begin(begin, answer) => self.begins.push((begin, answer)),
            Request::AcceptGaps(answer) => self.gaps.push(answer),
            Request::Mark(fingerprint, answer) => {
                let _ = answer.send(self.ledger.mark(fingerprint));
            }
            Request::Entries(answer) => {
                let _ = answer.send(self.ledger.entries().map(<[Entry]>::to_vec));
            }
        }
    }

    /// Writes everything that waits, and says what has become of it; whether that worked.
    fn write(&mut self) -> bool {
        let (begins, answers): (Vec<_>, Vec<_>) = self.begins.drain(..).unzip();
        let (marks, gaps) = (std::mem::take(&mut self.marks), std::mem::take(&mut self.gaps));
        // Each of these is an operator's word.
        let anew = !gaps.is_empty() || begins.iter().any(|begin| begin.kind == Kind::Static);
        let done = self.ledger.commit(anew, |book, wall| {
            if !gaps.is_empty() {
                book.accept_gaps();
            }
            let begun: Vec<_> = begins.iter().map(|begin| book.begin(begin, wall)).collect();
            let raised: Vec<_> =
                marks.iter().map(|(fingerprint, mark, _)| book.raise(*fingerprint, *mark, wall)).collect();
            (begun, raised)
        });
        let (begun, raised) = match &done {
            Ok((begun, raised)) => {
                let raised = raised.iter().cloned().map(|raised| raised.map_err(NotReserved::Lost)).collect();
                (begun.clone(), raised)
            }
            Err(reason) => (vec![Err(reason.clone().into()); begins.len()], vec![Err(reason.clone()); marks.len()]),
        };
        self.report(marks, raised);
        answers.into_iter().zip(begun).for_each(|(answer, begun)| {
            let _ = answer.send(begun);
        });
        let done = done.map(|_| ());
        gaps.into_iter().for_each(|answer| {
            let _ = answer.send(done.clone());
        });
        done.is_ok()
    }

    fn report(&self, marks: Vec<Mark>, raised: Vec<Result<(), NotReserved>>) {
        for ((fingerprint, mark, answer), raised) in marks.into_iter().zip(raised) {
            if let Some(answer) = answer {
                let _ = answer.send(raised);
                continue;
            }
            let _ = self.reports.send(match raised {
                Ok(()) => Report::Reserved { fingerprint, mark },
                Err(reason) => Report::Failed { fingerprint, reason },
            });
        }
    }
}
