//! What a reflector does where it may not or cannot seal an answer, and what it says of that.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot make its packets must fail")]

mod sim;

use std::collections::BTreeSet;
use std::net::IpAddr;

use adit::engine::associations::{Material, Pair};
use adit::engine::ledger::{Lost, NotReserved};
use adit::engine::numbers::{BLOCK, Numbers};
use adit::engine::{Time, Tunnel};
use adit::reflect::silence::News;
use adit::reflect::{Answer, FarTunnel, Reflector, Wrap};
use adit::wire::esp::{Algorithm, peek};
use adit::wire::payload::Fields;
use adit::wire::probe::Seal;
use adit::wire::{Reject, Stamp, Template};
use sim::esp::{ALL, esp_tunnel, gcm, numbers, seed};

/// A reflector of one tunnel, and what seals probes for it.
struct Bench {
    reflector: Reflector,
    near: Pair,
    template: Template,
}

fn tunnel() -> Tunnel {
    esp_tunnel(0, Algorithm::Aes256Gcm, false)
}

impl Bench {
    /// Its answers bear these numbers.
    fn with(far: Numbers) -> Self {
        let (tunnel, material) = (tunnel(), gcm(1));
        let pair = material.reversed().pair(&seed(200), far);
        let far = FarTunnel {
            further: Vec::new(),
            name: tunnel.name.clone(),
            outer: tunnel.onion.outer.reversed(),
            inner: tunnel.onion.inner.reversed(),
            wrap: Wrap::Esp { pair: Box::new(pair), udp: false },
        };
        Self {
            reflector: Reflector::new(Time::ZERO, vec![far], None, Vec::new()),
            near: material.pair(&seed(1), numbers(&material)),
            template: Template::new(&tunnel.onion),
        }
    }

    /// Sends it a probe.
    fn ask(&mut self) -> Result<Vec<Answer>, Reject> {
        let sequence = self.near.numbers.take().unwrap();
        let seal = Seal { outbound: &self.near.outbound, sequence };
        let stamp = Stamp { fields: Fields { tunnel: 0, sequence, sent: 1 }, identifier: 1, ip_id: 1 };
        let mut probe = vec![0; 512];
        let length = self.template.emit(&stamp, &sim::secret(), Some(seal), &mut probe).unwrap();
        let mut answers = Vec::new();
        self.reflector.handle(Time::ZERO, sim::arrived(&probe[..length]), &mut answers)?;
        Ok(answers)
    }

    /// The sequence numbers of the answers to so many probes.
    fn answers_to(&mut self, probes: u32) -> Vec<u32> {
        let answers = (0..probes).flat_map(|_| self.ask().unwrap());
        answers.map(|answer| peek(&answer.bytes[20..]).unwrap().sequence).collect()
    }

    /// What people have been told since the last time.
    fn told(&mut self) -> Vec<String> {
        let told = std::iter::from_fn(|| self.reflector.poll_told());
        told.map(|told| format!("{}: {}", told.tunnel, told.news)).collect()
    }

    fn reserve_fails(&mut self, reason: &NotReserved) {
        let reserve = self.reflector.poll_reserve().expect("it asks for numbers");
        assert_eq!(self.reflector.poll_reserve(), None, "asked for once");
        self.reflector.handle_unreserved(reserve.key, reason);
    }
}

fn full() -> NotReserved {
    NotReserved::Unwritten("no space left on the device".to_owned())
}

/// What the kernel has: destination and SPI.
fn known<const N: usize>(associations: [(IpAddr, u32); N]) -> BTreeSet<(IpAddr, u32)> {
    associations.into()
}

#[test]
fn a_tunnel_whose_association_the_kernel_has_is_not_answered_until_it_is_gone() {
    let Material { spi_out, spi_in, .. } = gcm(1);
    let outer = tunnel().onion.outer;
    // As the far end sees it: it seals towards the prober, by the prober's inbound SPI.
    for own in [(outer.local(), spi_in), (outer.far(), spi_out)] {
        let mut bench = Bench::with(numbers(&gcm(1)));
        let elsewhere = "10.77.0.1".parse().unwrap();
        let others = [(outer.local(), spi_out), (outer.far(), spi_in), (elsewhere, own.1), (own.0, 0x9999)];
        bench.reflector.handle_kernel_associations(&known(others));
        assert_eq!((bench.answers_to(1), bench.told()), (vec![1], vec![]), "others' are others'");

        let sealed = bench.ask().unwrap().pop().unwrap();
        assert!(!bench.reflector.is_barred(sealed.tunnel.unwrap()));
        for _ in 0..3 {
            bench.reflector.handle_kernel_associations(&known([own]));
            assert_eq!(bench.ask(), Err(Reject::EspSpi));
        }
        assert!(bench.reflector.is_barred(sealed.tunnel.unwrap()), "what waits to be sent is not sent either");
        let told = bench.told();
        assert_eq!(told.len(), 1, "told once: {told:?}");
        let words =
            format!("t0: cannot be answered: spi-conflict: the kernel has an association with SPI {:#x} ", own.1);
        assert!(told[0].starts_with(&words), "{told:?}");
        assert_eq!((bench.reflector.counters().refused, bench.reflector.counters().answered), (3, 2));

        bench.reflector.handle_kernel_associations(&known(others));
        assert_eq!(bench.answers_to(2), [3, 4], "no number was used meanwhile");
        assert_eq!(bench.told(), ["t0: can be answered again"]);
    }
}

#[test]
fn the_end_of_the_numbers_is_announced_and_then_told_once() {
    let last = u64::from(u32::MAX);
    let mut bench = Bench::with(Numbers::new(last / 10 * 9, ALL, last));
    bench.answers_to(3);
    assert_eq!(bench.told(), Vec::<String>::new(), "too early");
    bench.answers_to(20);
    let told = bench.told();
    assert_eq!(told.len(), 1, "told once: {told:?}");
    assert!(told[0].contains("nine tenths") && told[0].contains("new keys and SPIs at both ends"), "{told:?}");

    let mut bench = Bench::with(Numbers::new(last - 1, ALL, last));
    assert_eq!(bench.answers_to(5), [u32::MAX - 1, u32::MAX], "the last one may be used");
    let told = bench.told();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].starts_with("t0: cannot be answered: sequence-exhausted: ") && told[1].contains("new keys"));
    assert_eq!(bench.reflector.poll_reserve(), None);
}

#[test]
fn numbers_that_cannot_be_reserved_are_a_warning_and_then_an_error_and_go_on_by_themselves() {
    let mut bench = Bench::with(Numbers::new(5_000, 5_004, u32::MAX.into()));
    bench.answers_to(1);
    bench.reserve_fails(&full());
    let told = bench.told();
    assert_eq!(told.len(), 1, "{told:?}");
    for words in ["no space left on the device", "state_dir", "3 more answers"] {
        assert!(told[0].contains(words), "{told:?}");
    }
    bench.answers_to(2);
    bench.reserve_fails(&full());
    assert_eq!(bench.told(), Vec::<String>::new(), "told before");
    assert_eq!(bench.answers_to(3), [5_003]);
    bench.reserve_fails(&full());
    let told = bench.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("t0: cannot be answered: sequence-state-unwritten: "), "{told:?}");
    assert!(told[0].contains("no space left on the device") && told[0].contains("state_dir"), "{told:?}");

    assert!(bench.answers_to(1).is_empty());
    let reserve = bench.reflector.poll_reserve().expect("and it goes on asking");
    assert_eq!(reserve.mark, 5_004 + BLOCK);
    bench.reflector.handle_reserved(reserve.key, reserve.mark);
    assert_eq!(bench.answers_to(2), [5_004, 5_005]);
    assert_eq!(bench.told(), ["t0: can be answered again"]);
}

#[test]
fn a_warning_is_taken_back_when_numbers_are_reserved_in_time() {
    let mut bench = Bench::with(Numbers::new(5_000, 5_004, u32::MAX.into()));
    bench.answers_to(1);
    bench.reserve_fails(&full());
    bench.told();
    bench.answers_to(1);
    let reserve = bench.reflector.poll_reserve().unwrap();
    bench.reflector.handle_reserved(reserve.key, reserve.mark);
    assert_eq!(bench.reflector.poll_told().map(|told| told.news), Some(News::Reserved));
    assert_eq!(bench.told(), Vec::<String>::new());
}

/// A disk that was full at the start: nothing is reserved, so no answer can ask for more by being sealed.
#[test]
fn a_reflector_that_starts_without_numbers_asks_for_them() {
    let mut bench = Bench::with(Numbers::new(5_000, 5_000, u32::MAX.into()));
    assert!(bench.answers_to(3).is_empty());
    let reserve = bench.reflector.poll_reserve().expect("it asks for numbers");
    assert_eq!(bench.told(), Vec::<String>::new(), "nothing has failed yet");
    bench.reflector.handle_reserved(reserve.key, reserve.mark);
    assert_eq!(bench.answers_to(1), [5_000]);
}

#[test]
fn a_record_that_is_lost_ends_the_answers_at_once_with_the_remedy() {
    let mut bench = Bench::with(Numbers::new(5_000, 5_004, u32::MAX.into()));
    bench.answers_to(1);
    bench.reserve_fails(&NotReserved::Lost(Lost::ChangedUnderUs));
    assert_eq!(bench.ask(), Err(Reject::EspSpi), "somebody else may use the numbers that are left");
    let told = bench.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("t0: cannot be answered: sequence-state-lost: "), "{told:?}");
    assert!(told[0].contains("who else writes to state_dir") && told[0].contains("--begin t0=N"), "{told:?}");
}
