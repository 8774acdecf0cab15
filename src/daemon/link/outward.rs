//! The steward's end of the line.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use zeroize::Zeroizing;

use super::request::LENGTH;
use super::{Request, WayKind, Word};
use crate::daemon::kernel::{News, Sockets};
use crate::daemon::space::Way;
use crate::daemon::steer;
use crate::engine::Egress;
use crate::io::device::WITHHELD;
use crate::io::letters;
use crate::io::raw::Opened;

/// Requests that may wait to be granted: a prober that asks for more has to wait itself.
const WAITING: usize = 4096;

/// A word, and what is handed over with it.
pub(in crate::daemon) struct Parcel {
    word: Word,
    hand: Vec<Hand>,
}

/// What is handed over. Closed here once the other end has it.
enum Hand {
    Receiver(Opened),
    Way(Way),
    Plain(OwnedFd),
}

impl Hand {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Receiver(opened) => vec![opened.socket()],
            Self::Way(Way::Raw(sender)) => vec![sender.socket()],
            Self::Way(Way::Device(sender)) => sender.parts().map(Vec::from).unwrap_or_default(),
            Self::Plain(descriptor) => vec![descriptor.as_fd()],
        }
    }
}

impl From<Word> for Parcel {
    fn from(word: Word) -> Self {
        Self { word, hand: Vec::new() }
    }
}

impl Parcel {
    /// A word with plain descriptors.
    pub(in crate::daemon) fn with(word: Word, descriptors: Vec<OwnedFd>) -> Self {
        Self { word, hand: descriptors.into_iter().map(Hand::Plain).collect() }
    }

    fn way(egress: Egress, way: Result<Way, String>) -> Self {
        let kind = match &way {
            Ok(Way::Raw(_)) => Ok(WayKind::Raw),
            Ok(Way::Device(sender)) => Ok(WayKind::Device(sender.index())),
            Err(why) => Err(why.clone()),
        };
        Self { word: Word::Way(egress, kind), hand: way.ok().map(Hand::Way).into_iter().collect() }
    }

    /// What the thread of sockets tells.
    pub(in crate::daemon) fn of(news: News) -> Vec<Self> {
        match news {
            News::There(namespace, Sockets { receivers, ways }) => {
                let kinds = receivers.iter().map(Opened::kind).collect();
                let there = Self {
                    word: Word::There(namespace, kinds, ways.len()),
                    hand: receivers.into_iter().map(Hand::Receiver).collect(),
                };
                let ways = ways.into_iter().map(|(egress, way)| Self::way(egress, way));
                std::iter::once(there).chain(ways).collect()
            }
            News::Way(egress, way) => vec![Self::way(egress, way)],
            News::Missing(namespace, why) => vec![Word::Missing(namespace, why).into()],
            News::Associations(namespace, seen) => vec![Word::Associations(namespace, seen).into()],
            News::NotRenewed(questions, why) => vec![Word::NotRenewed(questions, why).into()],
            // Its texts go with it.
            News::Renewed(renewal) => renewal.found.into_iter().flat_map(Self::of).chain([Word::Go.into()]).collect(),
            News::Withheld(tunnel, why) => {
                let place = why.and_then(|why| WITHHELD.iter().position(|known| *known == why));
                vec![Word::Withheld(tunnel, place.and_then(|place| u8::try_from(place).ok())).into()]
            }
        }
    }
}

impl From<steer::News> for Parcel {
    fn from(news: steer::News) -> Self {
        Word::Routes(news).into()
    }
}

/// The line to one prober. It is closed when this is dropped.
pub(in crate::daemon) struct Outward {
    parcels: mpsc::Sender<Parcel>,
    requests: Receiver<Request>,
}

impl Outward {
    /// Starts the threads that read and write.
    ///
    /// # Errors
    /// No room for them.
    pub(in crate::daemon) fn start(line: OwnedFd) -> io::Result<Self> {
        let (parcels, outbox) = mpsc::channel();
        let (inbox, requests) = channel(WAITING);
        let reading = line.try_clone()?;
        thread::Builder::new().name("from-prober".to_owned()).spawn(move || read(&reading, &inbox))?;
        thread::Builder::new().name("to-prober".to_owned()).spawn(move || write(&line, &outbox))?;
        Ok(Self { parcels, requests })
    }

    /// Says something.
    pub(in crate::daemon) fn say(&self, parcel: impl Into<Parcel>) {
        // Nobody at the other end: that is seen where requests are read.
        let _ = self.parcels.send(parcel.into());
    }

    /// A way to say something from another thread.
    pub(in crate::daemon) fn speaker(&self) -> impl FnOnce(Word) + Send + use<> {
        let parcels = self.parcels.clone();
        move |word| drop(parcels.send(word.into()))
    }

    /// The next request; `None` if the prober has ended, or lost its senses.
    pub(in crate::daemon) async fn request(&mut self) -> Option<Request> {
        self.requests.recv().await
    }
}

fn read(line: &OwnedFd, inbox: &Sender<Request>) {
    // One byte more, so that what is too long shows.
    let mut buffer = [0; LENGTH + 1];
    while let Ok(Some(length)) = letters::read_note(line, &mut buffer) {
        let Some(request) = Request::parse(&buffer[..length]) else {
            tracing::error!("the prober has asked for something that it never would: it is ended");
            return;
        };
        if inbox.blocking_send(request).is_err() {
            return;
        }
    }
}

fn write(line: &OwnedFd, outbox: &mpsc::Receiver<Parcel>) {
    for Parcel { word, hand } in outbox {
        let descriptors: Vec<_> = hand.iter().flat_map(Hand::descriptors).collect();
        let sent = postcard::to_stdvec(&word)
            .map(Zeroizing::new)
            .map_err(io::Error::other)
            .and_then(|bytes| letters::send(line, &bytes, &descriptors));
        if sent.is_err() {
            // The prober is gone, and everything that was for it is closed with this.
            return;
        }
    }
}
