//! The prober's end of the line.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use super::{Begin, Packed, Request, WayKind, Word};
use crate::config::Config;
use crate::daemon::kernel::{Line, News, Sockets, Wish};
use crate::daemon::plan::{Numbering, Plan};
use crate::daemon::renewal::Renewal;
use crate::daemon::space::Way;
use crate::daemon::steer::{self, Order, Steersman};
use crate::io::device::{DeviceSender, WITHHELD};
use crate::io::letters::{self, Letter};
use crate::io::local::{Door, Membership};
use crate::io::raw::{Opened, Sender};

/// The line to the steward, before anything is probed.
pub(in crate::daemon) struct Inward {
    line: OwnedFd,
}

/// What the prober has from the steward.
pub(in crate::daemon) struct Supplies {
    /// What was there at the start.
    pub(in crate::daemon) found: Vec<News>,
    /// What comes later, and what can be wished for.
    pub(in crate::daemon) line: Line,
    /// Whoever keeps the kernel's routes.
    pub(in crate::daemon) steersman: Steersman,
    /// The way to show that the loop goes on.
    pub(in crate::daemon) pulse: UnboundedSender<Request>,
    /// Who says which users may change things.
    pub(in crate::daemon) membership: Membership,
    /// Listeners of TCP, as they come and go; until they are taken.
    pub(in crate::daemon) doors: Option<UnboundedReceiver<Option<Door>>>,
    /// How many configurations there were before this one.
    pub(in crate::daemon) generation: u32,
    /// Becomes true when the steward wants an end, or is gone.
    pub(in crate::daemon) stop: watch::Receiver<bool>,
}

impl Inward {
    pub(in crate::daemon) const fn new(line: OwnedFd) -> Self {
        Self { line }
    }

    /// Waits for the first word.
    ///
    /// # Errors
    /// There is no steward at the other end.
    pub(in crate::daemon) fn begin(&self) -> io::Result<(Begin, Vec<OwnedFd>)> {
        match read(&self.line)? {
            Some((Word::Begin(begin), handed)) => Ok((begin, handed)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Waits until all that is there has been told, and starts the threads that read and write.
    ///
    /// # Errors
    /// The steward is gone; no room for threads.
    pub(in crate::daemon) fn supplies(self, plan: &Plan, begun: Begun) -> io::Result<Supplies> {
        let mut found = Vec::new();
        loop {
            let (word, handed) = read(&self.line)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if matches!(word, Word::Go) {
                break;
            }
            found.extend(news(&self.line, word, handed)?);
        }
        let (tell, news) = unbounded_channel();
        let (wishes, wished) = unbounded_channel();
        let (orders, ordered) = unbounded_channel();
        let (tell_routes, routes) = unbounded_channel();
        let (ask, asked) = unbounded_channel();
        let (open, doors) = unbounded_channel();
        let (end, stop) = watch::channel(false);
        let questions = Questions::default();
        let numbering = plan.numbering();
        let Begun { generation, dry_run } = begun;
        let questions_here = questions.clone();
        let hall = Hall { tell, routes: tell_routes, questions: questions_here, doors: open, end, numbering, dry_run };
        let reading = self.line.try_clone()?;
        thread::Builder::new().name("from-steward".to_owned()).spawn(move || hall.read(&reading))?;
        thread::Builder::new().name("to-steward".to_owned()).spawn(move || write(&self.line, asked))?;
        let to_steward = ask.clone();
        thread::Builder::new().name("wishes".to_owned()).spawn(move || wish(wished, &to_steward))?;
        let to_steward = ask.clone();
        thread::Builder::new().name("orders".to_owned()).spawn(move || order(ordered, &to_steward))?;
        Ok(Supplies {
            found,
            line: Line { news, wishes },
            steersman: Steersman::over(orders, routes),
            membership: questions.membership(ask.clone()),
            pulse: ask,
            doors: Some(doors),
            generation,
            stop,
        })
    }
}

/// What the prober was told at its beginning, and what the line has to know of it.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) struct Begun {
    /// How many configurations there were before this one.
    pub(in crate::daemon) generation: u32,
    /// Changes of the kernel's routes are printed instead of made.
    pub(in crate::daemon) dry_run: bool,
}

/// Questions about users that are not answered yet.
#[derive(Clone, Default)]
struct Questions(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    next: u32,
    waiting: Vec<(u32, oneshot::Sender<bool>)>,
}

impl Questions {
    fn ask(&self) -> (u32, oneshot::Receiver<bool>) {
        let (answer, wait) = oneshot::channel();
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.next = asked.next.wrapping_add(1);
        let question = asked.next;
        // Whoever does not wait any more misses nothing.
        asked.waiting.retain(|(_, answer)| !answer.is_closed());
        asked.waiting.push((question, answer));
        (question, wait)
    }

    fn answer(&self, question: u32, is_member: bool) {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = asked.waiting.iter().position(|(known, _)| *known == question);
        if let Some(place) = known {
            let _ = asked.waiting.swap_remove(place).1.send(is_member);
        }
    }

    /// As the local socket asks them.
    fn membership(self, ask: UnboundedSender<Request>) -> Membership {
        Membership::Asked(Arc::new(move |uid| {
            let (question, wait) = self.ask();
            let _ = ask.send(Request::Member { question, uid });
            wait
        }))
    }
}

/// Where words go.
struct Hall {
    tell: UnboundedSender<News>,
    routes: UnboundedSender<steer::News>,
    questions: Questions,
    doors: UnboundedSender<Option<Door>>,
    end: watch::Sender<bool>,
    /// Of the last configuration.
    numbering: Numbering,
    dry_run: bool,
}

impl Hall {
    fn read(mut self, line: &OwnedFd) {
        while let Ok(Some((word, handed))) = read(line) {
            match word {
                Word::Stop => break,
                Word::Routes(news) => drop(self.routes.send(news)),
                Word::Member(question, is_member) => self.questions.answer(question, is_member),
                Word::Door(door) => {
                    let door = door.zip(handed.into_iter().next());
                    let door = door.map(|((address, page), socket)| Door { socket, address, page });
                    // Who serves them ends with the loop.
                    let _ = self.doors.send(door);
                }
                Word::NotRenewed(questions, why) => drop(self.tell.send(News::NotRenewed(questions, why))),
                Word::Renew(generation, questions, texts) => {
                    if let Err(error) = self.renew(line, generation, questions, &texts) {
                        tracing::error!(%error, "the steward is not understood");
                        break;
                    }
                }
                word @ (Word::Begin(_)
                | Word::There(..)
                | Word::Missing(..)
                | Word::Way(..)
                | Word::Associations(..)
                | Word::Withheld(..)
                | Word::Go) => match news(line, word, handed) {
                    Ok(news) => news.into_iter().for_each(|news| drop(self.tell.send(news))),
                    Err(error) => {
                        tracing::error!(%error, "the steward is not understood");
                        break;
                    }
                },
            }
        }
        self.close();
    }

    /// Makes another configuration of its texts, and takes what is open for it.
    fn renew(&mut self, line: &OwnedFd, generation: u32, questions: Vec<u32>, texts: &Packed) -> io::Result<()> {
        let config = Config::of_texts(&texts.unpack()?).map_err(io::Error::other)?;
        let numbering = std::mem::take(&mut self.numbering);
        let mut renewal = Renewal::new(generation, numbering, config, self.dry_run, questions);
        self.numbering = renewal.plan.numbering();
        loop {
            let (word, handed) = read(line)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if matches!(word, Word::Go) {
                break;
            }
            renewal.found.extend(news(line, word, handed)?);
        }
        // The loop may have ended; then this ends shortly.
        let _ = self.tell.send(News::Renewed(Box::new(renewal)));
        Ok(())
    }

    /// Says that it is over.
    fn close(self) -> ! {
        let _ = self.end.send(true);
        loop {
            // That the channels close would be told as a trouble of its own: they stay open to the end.
            thread::park();
        }
    }
}

fn read(line: &OwnedFd) -> io::Result<Option<(Word, Vec<OwnedFd>)>> {
    let Some(Letter { bytes, handed }) = letters::receive(line)? else { return Ok(None) };
    let word = postcard::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((word, handed)))
}

/// What a word says of sockets and of the kernel; none of the others does.
fn news(line: &OwnedFd, word: Word, handed: Vec<OwnedFd>) -> io::Result<Option<News>> {
    Ok(Some(match word {
        Word::There(namespace, kinds, ways) => {
            let receivers = handed.into_iter().zip(kinds).map(|(socket, kind)| Opened::handed(socket, kind)).collect();
            let ways = (0..ways).map(|_| match read(line)? {
                Some((Word::Way(egress, kind), handed)) => Ok((egress, way(kind, handed)?)),
                _ => Err(io::ErrorKind::InvalidData.into()),
            });
            News::There(namespace, Sockets { receivers, ways: ways.collect::<io::Result<_>>()? })
        }
        Word::Missing(namespace, why) => News::Missing(namespace, why),
        Word::Way(egress, kind) => News::Way(egress, way(kind, handed)?),
        Word::Associations(namespace, seen) => News::Associations(namespace, seen),
        Word::Withheld(tunnel, place) => {
            News::Withheld(tunnel, place.and_then(|place| WITHHELD.get(usize::from(place)).copied()))
        }
        Word::Begin(_)
        | Word::Go
        | Word::Renew(..)
        | Word::NotRenewed(..)
        | Word::Routes(_)
        | Word::Member(..)
        | Word::Door(_)
        | Word::Stop => {
            return Ok(None);
        }
    }))
}

fn way(kind: Result<WayKind, String>, handed: Vec<OwnedFd>) -> io::Result<Result<Way, String>> {
    let kind = match kind {
        Ok(kind) => kind,
        Err(why) => return Ok(Err(why)),
    };
    let strange = |_| io::Error::from(io::ErrorKind::InvalidData);
    Ok(Ok(match kind {
        WayKind::Raw => {
            let [socket] = handed.try_into().map_err(strange)?;
            Way::Raw(Arc::new(Sender::handed(socket)?))
        }
        WayKind::Device(index) => {
            Way::Device(Box::new(DeviceSender::handed(handed.try_into().map_err(strange)?, index)?))
        }
    }))
}

/// Sends what is asked for, one after the other.
fn write(line: &OwnedFd, mut asked: UnboundedReceiver<Request>) {
    while let Some(request) = asked.blocking_recv() {
        // The reader sees that nobody is there any more.
        let _ = letters::note(line, &request.bytes());
    }
}

/// Grants what can be granted here, and passes on the rest.
fn wish(mut wished: UnboundedReceiver<Wish>, to_steward: &UnboundedSender<Request>) {
    while let Some(wish) = wished.blocking_recv() {
        let request = match wish {
            Wish::Search(egress) => Request::Search(egress),
            Wish::Again(namespace) => Request::Again(namespace),
            // Only the steward reads configurations.
            Wish::Renew(_) => continue,
            // The kernel may take its time: that is why it is done here.
            Wish::Close(receivers, ways) => {
                drop((receivers, ways));
                continue;
            }
        };
        let _ = to_steward.send(request);
    }
}

/// Passes on what tunnels cost.
fn order(mut ordered: UnboundedReceiver<Order>, to_steward: &UnboundedSender<Request>) {
    while let Some(order) = ordered.blocking_recv() {
        match order {
            Order::Cost(steer) => drop(to_steward.send(Request::Steer(steer))),
            // The steward knows what it has handed over.
            Order::Renew(_) => drop(to_steward.send(Request::Renewed)),
            // The steward sees to the routes, now or later.
            Order::Stop(done) => drop(done.send(())),
        }
    }
}
