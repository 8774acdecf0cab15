//! The pairs that ESP tunnels start with, and the record of their sequence numbers.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::plan::Plan;
use crate::engine::ledger::{Begin, Identity, Kind, Lost, NotReserved};
use crate::engine::numbers::{Numbers, beyond};
use crate::engine::{Material, Pair, Start, WallTime};
use crate::io::ledger::{Clerk, Ledger, Recorder, spawn};
use crate::wire::esp::IvSeed;

/// Pairs from key files, each with its numbers or with the reason why there are none.
pub struct Records {
    /// Whoever reserves numbers from now on; `None` where there is no record.
    pub clerk: Option<Clerk>,
    /// What the tunnels start with, by their index.
    pub starts: BTreeMap<u32, Start>,
}

impl Records {
    /// Pairs whose keys do not outlive this process: their numbers begin at 1, and nothing records them.
    ///
    /// # Errors
    /// No random numbers to be had.
    pub fn none(pairs: &BTreeMap<u32, Material>) -> io::Result<Self> {
        let start =
            |material: &Material| -> io::Result<Start> { Ok(Start { pair: Some(begun(material)?), lost: None }) };
        let starts = pairs.iter().map(|(&tunnel, material)| Ok((tunnel, start(material)?)));
        Ok(Self { clerk: None, starts: starts.collect::<io::Result<_>>()? })
    }

    /// Resumes at the marks of the record in `state_dir` of this machine, after an operator's word on those in `begins`
    /// (index, name, first number). That it is lost, or cannot be used, concerns
    /// the pairs alone: each says so.
    ///
    /// # Errors
    /// No random numbers or no thread to be had.
    pub fn open(
        state_dir: &Path,
        machine: Identity,
        pairs: &BTreeMap<u32, Material>,
        wall: WallTime,
        begins: Vec<(u32, &str, Option<u64>)>,
        remedy: impl Fn(u32, &Lost) -> String,
    ) -> io::Result<Self> {
        let ledger = Ledger::open(state_dir, machine);
        let mut ledger = match ledger {
            Ok(ledger) => ledger,
            Err(error) => {
                let why = format!("the record of sequence numbers in {} cannot be used: {error}", state_dir.display());
                tracing::error!("{why}");
                return Self::unusable(pairs, &why);
            }
        };
        for (tunnel, name, first) in begins {
            begin(&mut ledger, &pairs[&tunnel], name, first.unwrap_or_else(|| beyond(1, wall, pairs[&tunnel].last())))?;
        }
        let resume = |material: &Material| {
            let mark = ledger.mark(material.outbound_key())?;
            Ok(Numbers::resume(mark, wall, material.last()))
        };
        let mut numbers = pairs.iter().map(|(&tunnel, material)| (tunnel, resume(material))).collect();
        reserve(&mut ledger, pairs, &mut numbers);
        let starts = numbers.into_iter().map(|(tunnel, resumed)| {
            let (numbers, lost) = match resumed {
                Ok(numbers) => (numbers, None),
                Err(lost) => (NO_NUMBERS, Some(format!("{lost}; {}", remedy(tunnel, &lost)))),
            };
            Ok((tunnel, Start { pair: Some(pair(&pairs[&tunnel], numbers)?), lost }))
        });
        let starts = starts.collect::<io::Result<_>>()?;
        Ok(Self { clerk: Some(spawn(ledger)?), starts })
    }

    /// What pairs start with that come while the daemon runs: where the record says, or, if it cannot be used,
    /// with the reason why they cannot. `recorder` is the way to it, if it is open already.
    pub(super) async fn join(
        recorder: Option<Recorder>,
        state_dir: PathBuf,
        machine: Identity,
        wall: WallTime,
        pairs: BTreeMap<u32, (String, Material)>,
    ) -> Self {
        let opened = move || Ledger::open(&state_dir, machine).and_then(spawn);
        let (clerk, recorder) = match recorder {
            Some(recorder) => (None, Ok(recorder)),
            // Once in a life; a disk may take its time.
            None => {
                match tokio::task::spawn_blocking(opened).await.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    Ok(clerk) => {
                        let recorder = clerk.recorder();
                        (Some(clerk), Ok(recorder))
                    }
                    Err(error) => (None, Err(format!("the record of sequence numbers cannot be used: {error}"))),
                }
            }
        };
        let starts = pairs.into_iter().map(async |(tunnel, (name, material))| {
            let numbers = match &recorder {
                Ok(recorder) => resumed(recorder, &name, &material, wall).await,
                Err(why) => Err(why.clone()),
            };
            let (numbers, lost) = numbers.map_or_else(|why| (NO_NUMBERS, Some(why)), |numbers| (numbers, None));
            match pair(&material, numbers) {
                Ok(pair) => (tunnel, Start { pair: Some(pair), lost }),
                Err(error) => (tunnel, Start { pair: None, lost: Some(format!("no random numbers: {error}")) }),
            }
        });
        // All of them ask at once, and are answered after one write.
        Self { clerk, starts: join_all(starts).await.into_iter().collect() }
    }

    fn unusable(pairs: &BTreeMap<u32, Material>, why: &str) -> io::Result<Self> {
        let start = |material: &Material| -> io::Result<Start> {
            Ok(Start { pair: Some(pair(material, NO_NUMBERS)?), lost: Some(why.to_owned()) })
        };
        let starts = pairs.iter().map(|(&tunnel, material)| Ok((tunnel, start(material)?)));
        Ok(Self { clerk: None, starts: starts.collect::<io::Result<_>>()? })
    }
}

/// The numbers that a pair goes on with, the first of them reserved; or why nobody knows.
async fn resumed(recorder: &Recorder, name: &str, material: &Material, wall: WallTime) -> Result<Numbers, String> {
    let silent = || "the record of sequence numbers does not answer; reload once more".to_owned();
    let said = |lost: Lost| format!("{lost}; {}", lost.remedy(name, Kind::Static));
    let key = material.outbound_key();
    let mark = timeout(PATIENCE, recorder.mark(key)).await.map_err(|_| silent())?.map_err(|_| silent())?;
    let mut numbers = Numbers::resume(mark.map_err(said)?, wall, material.last());
    let Some(mark) = numbers.wants() else { return Ok(numbers) };
    match timeout(PATIENCE, recorder.raise(key, mark)).await {
        Ok(Ok(Ok(()))) => numbers.grant(mark),
        Ok(Ok(Err(NotReserved::Lost(lost)))) => return Err(said(lost)),
        // It is asked for again.
        Ok(Ok(Err(NotReserved::Unwritten(_)))) | Ok(Err(_)) | Err(_) => numbers.retry(),
    }
    Ok(numbers)
}

/// How long the record may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pairs to start with.
pub(super) fn of_plan(plan: &Plan, machine: Identity, wall: WallTime) -> io::Result<Records> {
    let is_esp = plan.tunnels.iter().any(|tunnel| tunnel.terms.is_some());
    match plan.state_dir.as_ref().filter(|_| is_esp) {
        Some(state_dir) => {
            let remedy = |tunnel: u32, lost: &Lost| lost.remedy(&plan.tunnels[tunnel as usize].name, Kind::Static);
            Records::open(state_dir, machine, &plan.material, wall, Vec::new(), remedy)
        }
        None => Records::none(&plan.material),
    }
}

/// A pair for keys that do not outlive this process: its numbers begin at 1, and nothing records them.
///
/// # Errors
/// No random numbers to be had.
pub fn begun(material: &Material) -> io::Result<Pair> {
    pair(material, Numbers::new(1, u64::MAX, material.last()))
}

fn pair(material: &Material, numbers: Numbers) -> io::Result<Pair> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    Ok(material.pair(&IvSeed::new(seed), numbers))
}

/// Of a pair that nobody may use: not one number is reserved.
const NO_NUMBERS: Numbers = Numbers::new(1, 1, 1);

/// Takes an operator's word that nobody has used the numbers from `first` on.
fn begin(ledger: &mut Ledger, material: &Material, name: &str, first: u64) -> io::Result<()> {
    let (fingerprint, spi, tunnel) = (material.outbound_key(), material.spi_out, name.to_owned());
    // Nothing is reserved yet: that follows for all of them together.
    let begin = Begin { fingerprint, spi, kind: Kind::Static, tunnel, first, mark: first };
    ledger.begin(&begin).map(drop).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// The numbers that each pair goes on with.
type Resumed = BTreeMap<u32, Result<Numbers, Lost>>;

/// Reserves what all of them want, in one write. What could not be written is asked for again while
/// the daemon runs.
fn reserve(ledger: &mut Ledger, pairs: &BTreeMap<u32, Material>, resumed: &mut Resumed) {
    let wanted = resumed.iter_mut().filter_map(|(tunnel, numbers)| Some((*tunnel, numbers.as_mut().ok()?.wants()?)));
    let wanted: Vec<(u32, u64)> = wanted.collect();
    let marks: Vec<_> = wanted.iter().map(|(tunnel, mark)| (pairs[tunnel].outbound_key(), *mark)).collect();
    let outcome = ledger.reserve(&marks);
    if let Err(error) = &outcome {
        tracing::error!("{error}");
    }
    for (tunnel, mark) in wanted {
        match (resumed.get_mut(&tunnel), &outcome) {
            (Some(Ok(numbers)), Ok(())) => numbers.grant(mark),
            (Some(Ok(numbers)), Err(NotReserved::Unwritten(_))) => numbers.retry(),
            (Some(numbers), Err(NotReserved::Lost(lost))) => *numbers = Err(lost.clone()),
            (Some(Err(_)) | None, _) => {}
        }
    }
}
