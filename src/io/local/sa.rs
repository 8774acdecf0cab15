//! Security associations over the local socket: installed, begun, shown. Keys come in; none goes out.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Deserializer};

use zeroize::Zeroizing;

use super::Handle;
use super::api::{Answer, Asked, Desk, Named, Problem, about, may_change};
use super::list::{PIECE, list};
use super::serve::Peer;
use crate::config::key_text;
use crate::engine::associations::{AssociationView, GRACE, Material};
use crate::engine::esp::Refusal;
use crate::engine::ledger::{Begin, BeginError, Kind};
use crate::engine::numbers::{BLOCK, Numbers, beyond};
use crate::engine::settings::{Source, Terms};
use crate::engine::{Engine, WallTime};
use crate::io::ledger::Recorder;
use crate::wire::esp::replay::{NARROWEST, WIDEST};
use crate::wire::esp::{Algorithm, IvSeed, Keys, SPI_MIN};

/// The longest time for which an old pair is still accepted.
const GRACE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// `GET /v1/sa`
pub(super) async fn all(Shared(handle): Shared<Handle>) -> Answer<Response> {
    list(handle, "associations", |engine, _, from| engine.associations_from(from, PIECE)).await
}

/// `GET /v1/tunnels/{name}/sa`
pub(super) async fn one(Shared(handle): Shared<Handle>, Named(name): Named) -> Answer<Json<AssociationView>> {
    let view = about(&handle, name.clone(), |engine, _, tunnel| Some(engine.associations(Some(tunnel)).pop())).await?;
    view.map(Json).ok_or_else(|| not_esp(&name))
}

fn not_esp(name: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, format!("{name} is not encapsulated in ESP by adit, so it has no associations"))
}

/// `POST /v1/tunnels/{name}/sa`
///
/// The body is not wiped: it is a slice of the connection's own read buffer, which hyper shares and keeps.
/// Collected into a buffer that is wiped, it would be there once more.
pub(super) async fn install(
    Shared(desk): Shared<Desk>,
    Extension(peer): Extension<Peer>,
    Named(name): Named,
    body: Bytes,
) -> Answer<Json<AssociationView>> {
    let (terms, tunnel, wall) = terms(&desk, peer, &name).await?;
    if terms.source == Source::Static {
        let why = "its keys come from files; write keys = \"installed\" for a tunnel whose keys are handed over";
        return Err(Problem::new(StatusCode::CONFLICT, format!("{name}: {why}")));
    }
    let Wanted { material, grace } = Wanted::read(&body, terms)
        .map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("the pair of associations: {why}")))?;
    let [out, back] = [material.spi_out, material.spi_in];
    let allowed = desk.handle.ask(move |engine, _| engine.may_install(tunnel, out, back)).await;
    allowed.ok_or_else(Problem::stopping)?.map_err(|refusal| refused(&name, &refusal))?;
    let first = beyond(1, wall, material.last());
    let numbers = record(&desk, Kind::Installed, &name, &material, first, material.last().saturating_add(1)).await?;
    let pair = material.pair(&seed()?, numbers);
    let named = name.clone();
    let installed = desk.handle.ask(move |engine, now| {
        // Another configuration may have come meanwhile.
        let takes_pairs = |&tunnel: &u32| engine.terms(tunnel).is_some_and(|terms| terms.source == Source::Installed);
        let tunnel = engine.find(&named).filter(takes_pairs).ok_or(Refusal::NotEsp)?;
        engine.install(now, tunnel, pair, grace)?;
        Ok(engine.associations(Some(tunnel)).pop())
    });
    let view = installed.await.ok_or_else(Problem::stopping)?.map_err(|refusal| refused(&name, &refusal))?;
    view.map(Json).ok_or_else(|| not_esp(&name))
}

fn refused(name: &str, refusal: &Refusal) -> Problem {
    Problem::new(StatusCode::CONFLICT, format!("{name}: {refusal}"))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BeginQuery {
    at: Option<u64>,
}

/// `POST /v1/tunnels/{name}/sa/begin`
pub(super) async fn begin(
    Shared(desk): Shared<Desk>,
    Extension(peer): Extension<Peer>,
    Named(name): Named,
    Asked(BeginQuery { at }): Asked<BeginQuery>,
) -> Answer<Json<AssociationView>> {
    let (terms, tunnel, wall) = terms(&desk, peer, &name).await?;
    if terms.source == Source::Installed {
        return accept_gaps(&desk, name, at).await;
    }
    let known = desk.handle.ask(move |engine, _| engine.recorded(tunnel)).await;
    let (key, spi, last, lost) = known.ok_or_else(Problem::stopping)?.ok_or_else(|| not_esp(&name))?;
    if !lost {
        return Err(begun_already(&name));
    }
    let first = at.unwrap_or_else(|| beyond(1, wall, last));
    if !(1..=last).contains(&first) {
        let why = format!("its sequence numbers go from 1 to {last}; choose one of them, or new keys and SPIs");
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("{name}: {why}")));
    }
    let begin = Begin {
        fingerprint: key,
        spi,
        kind: Kind::Static,
        tunnel: name.clone(),
        first,
        mark: first.saturating_add(BLOCK),
    };
    let numbers = written(&desk, begin, last).await?;
    let named = name.clone();
    let begun = desk.handle.ask(move |engine, now| {
        // Another configuration may have come meanwhile, with another pair.
        let has_key = |&tunnel: &u32| engine.recorded(tunnel).is_some_and(|(of, ..)| of == key);
        let tunnel = engine.find(&named).filter(has_key)?;
        let begun = engine.begin(now, tunnel, numbers);
        engine.associations(Some(tunnel)).pop().filter(|_| begun)
    });
    begun.await.ok_or_else(Problem::stopping)?.map(Json).ok_or_else(|| begun_already(&name))
}

fn begun_already(name: &str) -> Problem {
    let why = "its sequence numbers are known and go on by themselves; there is nothing to begin";
    Problem::new(StatusCode::CONFLICT, format!("{name}: {why}"))
}

/// An operator's word on keys that are installed: none from before a loss of the record will be once more.
async fn accept_gaps(desk: &Desk, name: String, at: Option<u64>) -> Answer<Json<AssociationView>> {
    if at.is_some() {
        let why = "its keys are installed, and their numbers begin when they are; leave --at away";
        return Err(Problem::new(StatusCode::CONFLICT, format!("{name}: {why}")));
    }
    let accepted = recorder(desk)?.accept_gaps().await.map_err(|_| Problem::stopping())?;
    accepted.map_err(|error| Problem::new(StatusCode::CONFLICT, format!("{name}: {error}")))?;
    one(Shared(desk.handle.clone()), Named(name)).await
}

fn recorder(desk: &Desk) -> Answer<&Recorder> {
    let why = "the record of sequence numbers cannot be used; `adit sa show` and the log say why";
    desk.handle.recorder().ok_or_else(|| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why))
}

/// Whether this client may change this tunnel's associations, and what they are made with.
async fn terms(desk: &Desk, peer: Peer, name: &str) -> Answer<(Terms, u32, WallTime)> {
    if !may_change(peer, desk.admins.as_ref()).await {
        return Err(Problem::forbidden());
    }
    let question = |engine: &mut Engine, now, tunnel| Some((engine.terms(tunnel), tunnel, engine.wall(now)));
    let (terms, tunnel, wall) = about(&desk.handle, name.to_owned(), question).await?;
    Ok((terms.ok_or_else(|| not_esp(name))?, tunnel, wall))
}

/// Writes down that a pair is used from now on.
async fn record(desk: &Desk, kind: Kind, name: &str, material: &Material, first: u64, mark: u64) -> Answer<Numbers> {
    let (fingerprint, spi, tunnel) = (material.outbound_key(), material.spi_out, name.to_owned());
    written(desk, Begin { fingerprint, spi, kind, tunnel, first, mark }, material.last()).await
}

async fn written(desk: &Desk, begin: Begin, last: u64) -> Answer<Numbers> {
    let (name, kind) = (begin.tunnel.clone(), begin.kind);
    let begun = recorder(desk)?.begin(begin).await.map_err(|_| Problem::stopping())?;
    let begun = begun.map_err(|error| {
        let remedy = match &error {
            BeginError::Lost(lost) => format!("; {}", lost.remedy(&name, kind)),
            BeginError::UsedBefore { .. } | BeginError::Unwritten(_) => String::new(),
        };
        Problem::new(StatusCode::CONFLICT, format!("{name}: {error}{remedy}"))
    })?;
    Ok(Numbers::new(begun.first, begun.mark, last))
}

fn seed() -> Answer<IvSeed> {
    let mut seed = [0; 16];
    let none = |error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random numbers: {error}"));
    getrandom::fill(&mut seed).map_err(none)?;
    Ok(IvSeed::new(seed))
}

/// A pair as it is handed over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    algorithm: String,
    #[serde(deserialize_with = "spi")]
    spi_out: u32,
    #[serde(deserialize_with = "spi")]
    spi_in: u32,
    key_out: Zeroizing<String>,
    key_in: Zeroizing<String>,
    esn: Option<bool>,
    replay_window: Option<u32>,
    grace: Option<String>,
}

/// A pair that is to be installed.
struct Wanted {
    material: Material,
    grace: Duration,
}

impl Wanted {
    /// Reads a pair. What is wrong is said without repeating what was written, for it may be a key.
    fn read(body: &[u8], terms: Terms) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
        let algorithm = Algorithm::from_name(&written.algorithm).ok_or_else(|| {
            let names = Algorithm::ALL.map(Algorithm::name).join(", ");
            format!("`algorithm` is none of {names}")
        })?;
        let replay_window = written.replay_window.unwrap_or(terms.replay_window);
        if replay_window != 0 && !(NARROWEST..=WIDEST).contains(&replay_window) {
            return Err(format!("`replay_window` is {replay_window}; write {NARROWEST} to {WIDEST}, or 0 for none"));
        }
        let grace = written.grace.as_deref().map_or(Ok(GRACE), |text| {
            let grace = humantime::parse_duration(text).ok().filter(|grace| *grace <= GRACE_MAX);
            grace.ok_or_else(|| "`grace` is no time up to a day; write \"30s\"".to_owned())
        })?;
        let (key_out, key_in) =
            (key("key_out", &written.key_out, algorithm)?, key("key_in", &written.key_in, algorithm)?);
        if key_out.fingerprint() == key_in.fingerprint() {
            return Err(
                "`key_out` and `key_in` are the same; each direction has a key of its own (RFC 4301 section 4.4.2)"
                    .to_owned(),
            );
        }
        let (spi_out, spi_in, esn) = (written.spi_out, written.spi_in, written.esn.unwrap_or(terms.esn));
        Ok(Self { material: Material { spi_out, spi_in, key_out, key_in, esn, replay_window }, grace })
    }
}

fn key(name: &str, text: &str, algorithm: Algorithm) -> Result<Keys, String> {
    let bytes = key_text(text.as_bytes()).map_err(|why| format!("`{name}` {why}"))?;
    let (found, needed) = (bytes.len(), algorithm.key_len());
    Keys::new(algorithm, bytes)
        .ok_or_else(|| format!("`{name}` has {found} bytes; {} needs {needed}", algorithm.name()))
}

/// What a decoder says, but for what it repeats of the text.
fn unreadable(error: &serde_json::Error) -> String {
    let (line, column, said) = (error.line(), error.column(), error.to_string());
    let harmless = ["missing field", "unknown field", "duplicate field", "an SPI"];
    if harmless.iter().any(|begin| said.starts_with(begin)) {
        return said;
    }
    let wrong = if error.is_data() { "something of another type than it must be" } else { "no JSON object" };
    format!("{wrong} at line {line} column {column}")
}

/// A number, or text such as "0x1001".
fn spi<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Spi {
        Number(u64),
        Text(Zeroizing<String>),
    }
    let wrong = || serde::de::Error::custom("an SPI is a number from 256 on, or text such as \"0x1001\"");
    let number = match Spi::deserialize(deserializer).map_err(|_| wrong())? {
        Spi::Number(number) => Some(number),
        Spi::Text(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
    };
    number.and_then(|number| u32::try_from(number).ok()).filter(|spi| *spi >= SPI_MIN).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TERMS: Terms = Terms { source: Source::Installed, esn: false, replay_window: 64 };

    fn pair(change: impl FnOnce(&mut Value)) -> Result<Wanted, String> {
        let mut pair = json!({"algorithm": "aes128-gcm", "spi_out": "0x1001", "spi_in": 8193,
            "key_out": "11".repeat(20), "key_in": "22".repeat(20)});
        change(&mut pair);
        Wanted::read(pair.to_string().as_bytes(), TERMS)
    }

    #[test]
    fn a_pair_is_read_with_what_the_configuration_says_and_with_what_it_says_itself() {
        let Wanted { material, grace } = pair(|_| {}).ok().unwrap();
        assert_eq!(
            (material.spi_out, material.spi_in, material.esn, material.replay_window),
            (0x1001, 8193, false, 64)
        );
        assert_eq!((material.key_out.algorithm(), grace), (Algorithm::Aes128Gcm, GRACE));
        let own = pair(|pair| {
            pair["esn"] = true.into();
            pair["replay_window"] = 0.into();
            pair["grace"] = "5s".into();
        });
        let Wanted { material, grace } = own.ok().unwrap();
        assert_eq!((material.esn, material.replay_window, grace), (true, 0, Duration::from_secs(5)));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_key_is_repeated() {
        let secret = "5ec7e7".repeat(7);
        let said = |change: &dyn Fn(&mut Value)| pair(|pair| change(pair)).err().unwrap();
        type Change<'a> = &'a dyn Fn(&mut Value);
        let wrong: [(Change<'_>, &str); 12] = [
            (&|pair| pair["algorithm"] = secret.clone().into(), "`algorithm` is none of aes128-cbc"),
            (&|pair| pair["spi_out"] = 255.into(), "an SPI is a number from 256 on"),
            (&|pair| pair["spi_in"] = secret.clone().into(), "an SPI is a number from 256 on"),
            (&|pair| pair["spi_in"] = 4_294_967_296_u64.into(), "an SPI is a number from 256 on"),
            (&|pair| pair["key_out"] = secret.clone().into(), "`key_out` has 21 bytes; aes128-gcm needs 20"),
            (&|pair| pair["key_in"] = "%%".into(), "`key_in` "),
            (&|pair| pair["key_in"] = pair["key_out"].clone(), "are the same"),
            (&|pair| pair["esn"] = secret.clone().into(), "something of another type"),
            (&|pair| pair["replay_window"] = 31.into(), "`replay_window` is 31; write 32 to 4096"),
            (&|pair| pair["grace"] = secret.clone().into(), "`grace` is no time"),
            (&|pair| pair["spi"] = 1.into(), "unknown field `spi`"),
            (&|pair| drop(pair.as_object_mut().unwrap().remove("key_in")), "missing field `key_in`"),
        ];
        for (change, words) in wrong {
            let said = said(change);
            assert!(said.contains(words) && !said.contains("5ec7e7"), "{said:?}, not {words:?}");
        }
        assert!(Wanted::read(b"{", TERMS).err().unwrap().starts_with("no JSON object at line 1"));
    }
}
