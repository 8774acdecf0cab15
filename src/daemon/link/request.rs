//! What the prober asks for, as bytes: eight numbers of 32 bits, the first of which says what it is.

use crate::engine::snapshot::Census;
use crate::engine::{Egress, Namespace, Steer, penalty};

/// The length of every request.
pub(in crate::daemon) const LENGTH: usize = 32;

/// What the prober may ask of the steward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) enum Request {
    /// What a tunnel costs its routes.
    Steer(Steer),
    /// The device of an exit is gone: look for another one.
    Search(Egress),
    /// What was opened in a namespace could not be used: open it again.
    Again(Namespace),
    /// The loop has made another turn, and this is what it has to show.
    Alive(Census),
    /// Whether a user, whose own group this is, belongs to the group that may change things.
    Member {
        /// By which the answer is known.
        question: u32,
        /// The user.
        uid: u32,
    },
    /// That the configuration be read again, by this question.
    Reload(u32),
    /// The configuration that was handed over last holds from here on; what follows is said by its numbers.
    Renewed,
}

const STEER: u32 = 1;
const SEARCH: u32 = 2;
const AGAIN: u32 = 3;
const ALIVE: u32 = 4;
const MEMBER: u32 = 5;
const RELOAD: u32 = 6;
const RENEWED: u32 = 7;

impl Request {
    /// As bytes.
    pub(in crate::daemon) fn bytes(self) -> [u8; LENGTH] {
        let numbers = match self {
            Self::Steer(Steer { tunnel, penalty: Some(penalty) }) => [STEER, tunnel, 1, penalty, 0, 0, 0, 0],
            Self::Steer(Steer { tunnel, penalty: None }) => [STEER, tunnel, 0, 0, 0, 0, 0, 0],
            Self::Search(egress) => [SEARCH, egress, 0, 0, 0, 0, 0, 0],
            Self::Again(namespace) => [AGAIN, namespace, 0, 0, 0, 0, 0, 0],
            Self::Alive(Census { tunnels: [unknown, healthy, degraded, down], penalised }) => {
                [ALIVE, unknown, healthy, degraded, down, penalised, 0, 0]
            }
            Self::Member { question, uid } => [MEMBER, question, uid, 0, 0, 0, 0, 0],
            Self::Reload(question) => [RELOAD, question, 0, 0, 0, 0, 0, 0],
            Self::Renewed => [RENEWED, 0, 0, 0, 0, 0, 0, 0],
        };
        let mut bytes = [0; LENGTH];
        bytes.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(place, number)| *place = number.to_le_bytes());
        bytes
    }

    /// Of bytes; `None` if nobody who is sane would say so.
    pub(in crate::daemon) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; LENGTH] = bytes.try_into().ok()?;
        let mut numbers = [0; LENGTH / 4];
        bytes.as_chunks().0.iter().zip(&mut numbers).for_each(|(bytes, number)| *number = u32::from_le_bytes(*bytes));
        Some(match numbers {
            [STEER, tunnel, 0, 0, 0, 0, 0, 0] => Self::Steer(Steer { tunnel, penalty: None }),
            [STEER, tunnel, 1, penalty, 0, 0, 0, 0] if penalty::ALL.contains(&penalty) => {
                Self::Steer(Steer { tunnel, penalty: Some(penalty) })
            }
            [SEARCH, egress, 0, 0, 0, 0, 0, 0] => Self::Search(egress),
            [AGAIN, namespace, 0, 0, 0, 0, 0, 0] => Self::Again(namespace),
            [ALIVE, unknown, healthy, degraded, down, penalised, 0, 0] => {
                Self::Alive(Census { tunnels: [unknown, healthy, degraded, down], penalised })
            }
            [MEMBER, question, uid, 0, 0, 0, 0, 0] => Self::Member { question, uid },
            [RELOAD, question, 0, 0, 0, 0, 0, 0] => Self::Reload(question),
            [RENEWED, 0, 0, 0, 0, 0, 0, 0] => Self::Renewed,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_reads_back() {
        for request in [
            Request::Steer(Steer { tunnel: 7, penalty: None }),
            Request::Steer(Steer { tunnel: u32::MAX, penalty: Some(1_500_000) }),
            Request::Search(3),
            Request::Again(2),
            Request::Alive(Census { tunnels: [1, 2, 3, 4], penalised: 5 }),
            Request::Member { question: 9, uid: 1000 },
            Request::Reload(3),
            Request::Renewed,
        ] {
            assert_eq!(Request::parse(&request.bytes()), Some(request));
        }
    }

    #[test]
    fn nothing_else_is_a_request() {
        let steer = Request::Steer(Steer { tunnel: 7, penalty: None }).bytes();
        assert_eq!(Request::parse(&steer[..LENGTH - 1]), None);
        assert_eq!(Request::parse(&[&steer[..], &[0]].concat()), None);
        // A penalty that no state has would make routes equal that are not, or get behind the backstop.
        for penalty in [1, 100, 499_999, 2_500_000, u32::MAX] {
            assert_eq!(Request::parse(&Request::Steer(Steer { tunnel: 7, penalty: Some(penalty) }).bytes()), None);
        }
        for (place, value) in [(0, 0), (0, 77), (8, 2), (31, 1)] {
            let mut other = steer;
            other[place] = value;
            assert_eq!(Request::parse(&other), None, "{place}");
        }
    }
}
