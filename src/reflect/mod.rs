//! A far end in user space: what a router with a GRE or ESP tunnel does with a probe, and faults on
//! demand.
//!
//! [`Reflector`] is pure, as the engine is: packets and times in, answers with their times out.
//! [`run`] is its shell. For the demo, for tests, and for an origin that cannot answer itself.
//!
//! A reflector behaves as a router with two routes: this side's inner address of each tunnel is
//! reached through that tunnel, everything else by the default route, bare. It answers echo
//! requests to its own addresses and forwards everything else that it decapsulates, which is how
//! an echo reply finds its way back (`spec/probes.md`, the four styles).

mod packets;
pub mod plan;
pub mod run;
pub mod silence;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::engine::esp::Reserve;
use crate::engine::{Pair, Time, schedule::mix};
use crate::wire::esp::{self, Opened};
use crate::wire::icmp::{self, Kind};
use crate::wire::payload::{self, Key};
use crate::wire::probe::{self, Arrived, Outermost, Sealed, Unpacked};
use crate::wire::{Ends, Family, Path, Reject, gre};
use packets::{answer, encapsulate, forward};
use plan::Fault;
use silence::{Standing, Told};

/// One tunnel, from the far router's side: `local` is its own end everywhere.
pub struct FarTunnel {
    /// Its name, for the fault plan.
    pub name: String,
    /// Outer addresses.
    pub outer: Ends,
    /// Inner addresses.
    pub inner: Ends,
    /// Addresses of its own beside these, for which it answers as well.
    pub further: Vec<IpAddr>,
    /// What is between the two headers.
    pub wrap: Wrap,
}

/// What is between the two headers, and what it takes to put it there.
pub enum Wrap {
    /// GRE.
    Gre(gre::Options),
    /// ESP.
    Esp {
        /// The pair of associations: outbound is towards the prober.
        pair: Box<Pair>,
        /// Whether ESP is carried in UDP.
        udp: bool,
    },
}

impl FarTunnel {
    /// Whether packets that came so are this tunnel's.
    fn receives(&self, path: &Path) -> bool {
        match (path, &self.wrap) {
            (Path::Gre { outer, key }, Wrap::Gre(options)) => self.outer == *outer && options.key == *key,
            (Path::Esp { outer, spi, udp: came }, Wrap::Esp { pair, udp }) => {
                self.outer == *outer && pair.inbound.spi() == *spi && came == udp
            }
            (Path::Bare | Path::Gre { .. } | Path::Esp { .. }, _) => false,
        }
    }

    fn pair_mut(&mut self) -> Option<&mut Pair> {
        match &mut self.wrap {
            Wrap::Esp { pair, .. } => Some(pair),
            Wrap::Gre(_) => None,
        }
    }

    fn pair(&self) -> Option<&Pair> {
        match &self.wrap {
            Wrap::Esp { pair, .. } => Some(pair),
            Wrap::Gre(_) => None,
        }
    }
}

/// A packet to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// When.
    pub at: Time,
    /// Where to.
    pub destination: IpAddr,
    /// The tunnel, by index, that it is to go through.
    pub tunnel: Option<usize>,
    /// With its IP header.
    pub bytes: Vec<u8>,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Echo requests answered.
    pub answered: u64,
    /// Packets forwarded.
    pub forwarded: u64,
    /// Answers that the fault plan swallowed.
    pub dropped: u64,
    /// Packets that were not for any tunnel, or broken.
    pub refused: u64,
}

/// The far end of some tunnels.
pub struct Reflector {
    start: Time,
    tunnels: Vec<FarTunnel>,
    /// What keeps each of them from being answered.
    standings: Vec<Standing>,
    faults: Vec<Fault>,
    mark_key: Option<Key>,
    counters: Counters,
    draws: u64,
    /// For this end's GRE sequence numbers.
    sent: u32,
    /// Where packets are decrypted to.
    scratch: Vec<u8>,
    /// ESP sequence numbers that are to be reserved.
    wanted: Vec<Reserve>,
    /// What people have not been told yet.
    told: VecDeque<Told>,
}

impl Reflector {
    /// A reflector that starts now.
    #[must_use]
    pub fn new(start: Time, tunnels: Vec<FarTunnel>, mark_key: Option<Key>, faults: Vec<Fault>) -> Self {
        let counters = Counters { answered: 0, forwarded: 0, dropped: 0, refused: 0 };
        let (scratch, wanted, told) = (Vec::new(), Vec::new(), VecDeque::new());
        let standings = tunnels.iter().map(|_| Standing::default()).collect();
        Self { start, tunnels, standings, faults, mark_key, counters, draws: 0, sent: 0, scratch, wanted, told }
    }

    /// The SPIs that packets for this end bear, in order.
    #[must_use]
    pub fn inlets(&self) -> Vec<u32> {
        let pairs = self.tunnels.iter().filter_map(FarTunnel::pair);
        let spis: BTreeSet<u32> = pairs.map(|pair| pair.inbound.spi()).collect();
        spis.into_iter().collect()
    }

    /// Replaces the fault plan; its times count from now.
    pub fn set_faults(&mut self, now: Time, faults: Vec<Fault>) {
        self.start = now;
        self.faults = faults;
    }

    /// What was done so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a packet and adds what is to be sent for it.
    ///
    /// # Errors
    /// Why there is nothing to be sent for it.
    pub fn handle(&mut self, now: Time, arrived: Arrived<'_>, answers: &mut Vec<Answer>) -> Result<(), Reject> {
        let result = self.reflect(now, arrived, answers);
        self.counters.refused += u64::from(result.is_err());
        result
    }

    fn reflect(&mut self, now: Time, arrived: Arrived<'_>, answers: &mut Vec<Answer>) -> Result<(), Reject> {
        match probe::outermost(arrived)? {
            Outermost::Plain(unpacked) => self.route(now, &unpacked, answers),
            Outermost::Sealed(sealed) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                let result = self.open(sealed, &mut scratch).and_then(|(path, opened)| {
                    let unpacked = probe::inside(path, opened.inner, opened.packet)?;
                    self.route(now, &unpacked, answers)
                });
                self.scratch = scratch;
                result
            }
        }
    }

    /// Opens an ESP packet.
    fn open<'a>(&mut self, sealed: Sealed<'_>, scratch: &'a mut Vec<u8>) -> Result<(Path, Opened<'a>), Reject> {
        let path = Path::Esp { outer: sealed.outer, spi: esp::peek(sealed.packet)?.spi, udp: sealed.udp };
        let index = self.tunnels.iter().position(|tunnel| tunnel.receives(&path)).ok_or(Reject::EspSpi)?;
        // An association that the kernel has, too, is none of ours.
        let open = !self.is_barred(index);
        let pair = self.tunnels[index].pair_mut().filter(|_| open).ok_or(Reject::EspSpi)?;
        Ok((path, pair.inbound.open(sealed.packet, scratch)?))
    }

    /// Answers, or forwards.
    fn route(&mut self, now: Time, unpacked: &Unpacked<'_>, answers: &mut Vec<Answer>) -> Result<(), Reject> {
        let inner = unpacked.inner.ok_or(Reject::WrongPath)?;
        let known = self.tunnels.iter().position(|tunnel| tunnel.receives(&unpacked.path));
        let index = known.ok_or(Reject::WrongOuter)?;
        let tunnel = &self.tunnels[index];
        let own = [tunnel.inner.local(), tunnel.outer.local()];
        let is_own = |address: &IpAddr| own.contains(address) || tunnel.further.contains(address);
        let (mut packet, destination) = match unpacked.echo.kind {
            Kind::Request if is_own(&unpacked.packet.destination) => {
                self.counters.answered += 1;
                (answer(unpacked), unpacked.packet.source)
            }
            Kind::Request | Kind::Reply => {
                self.counters.forwarded += 1;
                (forward(inner, unpacked.ends.family())?, unpacked.packet.destination)
            }
        };
        let header = packet.len() - (icmp::HEADER + unpacked.echo.payload.len());
        self.finish(now, index, unpacked.ends, header, &mut packet, destination, answers);
        Ok(())
    }

    /// Marks an answer, lets the fault plan have its way with it, and sends it where it belongs.
    #[expect(clippy::too_many_arguments, reason = "one packet's facts, used once")]
    fn finish(
        &mut self,
        now: Time,
        index: usize,
        ends: Ends,
        header: usize,
        packet: &mut [u8],
        destination: IpAddr,
        answers: &mut Vec<Answer>,
    ) {
        let name = self.tunnels[index].name.clone();
        let faults: Vec<Fault> =
            self.faults.iter().filter(|fault| fault.hits(&name, now.since(self.start))).cloned().collect();
        let message = &mut packet[header..];
        // Only probes are marked; anybody else's ping goes back as it came.
        let body = message[icmp::HEADER..].first_chunk_mut().filter(|body| body.starts_with(&payload::MAGIC));
        if let (Some(key), Some(body)) = (&self.mark_key, body) {
            payload::mark(body, key);
        }
        for fault in &faults {
            if self.draw(fault.corrupt.0) {
                // Where every prober looks: an answer that is corrupted is an answer refused.
                let at = icmp::HEADER + usize::try_from(self.number() % payload::MARKED as u64).unwrap_or(0);
                if let Some(byte) = message.get_mut(at) {
                    *byte ^= 1;
                }
            }
        }
        icmp::seal(ends, message);
        if faults.iter().any(|fault| self.draw(fault.drop.0)) {
            self.counters.dropped += 1;
            return;
        }
        let mut delay = Duration::ZERO;
        let mut copies = 1;
        for fault in &faults {
            if self.draw(fault.delayed.0) {
                let micros = u64::try_from(fault.jitter.as_micros()).unwrap_or(u64::MAX);
                delay += fault.delay + Duration::from_micros(self.number() % micros.saturating_add(1));
            }
            copies += usize::from(self.draw(fault.duplicate.0));
        }
        let FarTunnel { inner, outer, .. } = &self.tunnels[index];
        let (bytes, destination, tunnel) = if destination == inner.far() && destination != outer.far() {
            let destination = outer.far();
            let Some(bytes) = self.encapsulate(index, ends.family(), packet) else { return };
            (bytes, destination, Some(index))
        } else {
            (packet.to_vec(), destination, None)
        };
        answers.extend(std::iter::repeat_n(Answer { at: now + delay, destination, tunnel, bytes }, copies));
    }

    /// Puts a packet into a tunnel. Without a number to seal it with it is as good as lost, and people
    /// are told.
    fn encapsulate(&mut self, index: usize, inner: Family, packet: &[u8]) -> Option<Vec<u8>> {
        self.sent = self.sent.wrapping_add(1);
        let bytes = encapsulate(&mut self.tunnels[index], inner, packet, self.sent);
        self.take_stock(index);
        bytes
    }

    /// Whether something that happens with this many millionths happens now.
    fn draw(&mut self, millionths: u32) -> bool {
        millionths > 0 && self.number() % 1_000_000 < u64::from(millionths)
    }

    fn number(&mut self) -> u64 {
        self.draws += 1;
        mix(self.draws, 0xAD17)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::probe::Encapsulation;
    use crate::wire::{Direction, Onion, Stamp, Style, Template, payload::Fields, payload::Secret};

    fn onion() -> Onion {
        let ends = |local: [u8; 4], far: [u8; 4]| Ends::V4 { local: local.into(), far: far.into() };
        Onion {
            style: Style { kind: Kind::Request, direction: Direction::Bidirectional },
            outer: ends([192, 0, 2, 1], [203, 0, 113, 2]),
            inner: ends([10, 0, 0, 0], [10, 0, 0, 1]),
            encapsulation: Encapsulation::Gre(gre::Options::default()),
            ttl: 64,
            dscp: 0,
            size: 72,
        }
    }

    fn answer_to(probe: &[u8]) -> Vec<u8> {
        let Onion { outer, inner, .. } = onion();
        let wrap = Wrap::Gre(gre::Options::default());
        let (outer, inner, further) = (outer.reversed(), inner.reversed(), Vec::new());
        let far = FarTunnel { name: "t".to_owned(), outer, inner, further, wrap };
        let mut reflector = Reflector::new(Time::ZERO, vec![far], Some(Key::new([7; 16])), Vec::new());
        let mut answers = Vec::new();
        reflector.handle(Time::ZERO, Arrived::V4(probe), &mut answers).unwrap();
        answers.remove(0).bytes
    }

    #[test]
    fn a_probe_is_marked_and_anybody_else_s_ping_goes_back_as_it_came() {
        let secret = Secret { key: Key::new([1; 16]), epoch: 5 };
        let stamp = Stamp { fields: Fields { tunnel: 0, sequence: 1, sent: 2 }, identifier: 3, ip_id: 4 };
        let mut probe = vec![0; 256];
        let length = Template::new(&onion()).emit(&stamp, &secret, None, &mut probe).unwrap();
        probe.truncate(length);
        let answer = answer_to(&probe);
        let reply = probe::parse(Arrived::V4(&answer), &secret).unwrap();
        assert!(payload::is_marked(reply.payload, &Key::new([7; 16])));

        let body = length - payload::LEN;
        probe[body] ^= 0xFF;
        icmp::seal(onion().inner, &mut probe[body - icmp::HEADER..]);
        let answer = answer_to(&probe);
        assert_eq!(answer[body..], probe[body..], "payload untouched");
    }
}
