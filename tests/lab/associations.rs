//! Watching the kernel's own security associations.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::future::poll_fn;
use std::process::Command;

use adit::io::{netns, xfrm};
use libtest_mimic::{Failed, Trial};

use crate::router::run;
use crate::two::PATIENCE;

/// Set for a run of this program that only says what it may see without `CAP_NET_ADMIN`.
pub(crate) const UNPRIVILEGED: &str = "ADIT_LAB_UNPRIVILEGED";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("the_kernel's_associations_are_seen_as_they_come_and_go", come_and_go),
        Trial::test("an_association_of_another_namespace_is_none", other_namespace),
        Trial::test("an_association_that_expires_is_news", expires),
        Trial::test("more_news_than_there_is_room_for_are_news_and_the_list_is_whole", thousands),
        Trial::test("without_the_capability_associations_are_not_seen_and_it_says_so", unprivileged),
    ]
}

/// A watch and the runtime that it lives in.
struct Watched {
    runtime: tokio::runtime::Runtime,
    watch: xfrm::Watch,
}

impl Watched {
    fn open(namespace: &File) -> Result<Self, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let opened = netns::within(Some(namespace), xfrm::open)?;
        let watch = runtime.block_on(async { opened.register() })?;
        Ok(Self { runtime, watch })
    }

    /// Waits for news, then asks for the list.
    fn after_news(&mut self) -> Result<Vec<String>, Failed> {
        let Self { runtime, watch } = self;
        let ready = poll_fn(|context| watch.poll_ready(context));
        let ready = runtime.block_on(async { tokio::time::timeout(PATIENCE, ready).await });
        ready.map_err(|_| format!("no news in {PATIENCE:?}"))?;
        if !watch.changed()? {
            return Err("woken without news".into());
        }
        self.list()
    }

    fn list(&mut self) -> Result<Vec<String>, Failed> {
        let associations = self.watch.associations()?;
        Ok(associations.into_iter().map(|(to, spi)| format!("{to} {spi:x}")).collect())
    }

    /// Whether there is no news, now and to somebody who waits for it.
    fn is_quiet(&mut self) -> Result<bool, Failed> {
        let quiet = !self.watch.changed()?;
        let watch = &self.watch;
        let ready = poll_fn(|context| watch.poll_ready(context));
        let waited =
            self.runtime.block_on(async { tokio::time::timeout(std::time::Duration::from_millis(200), ready).await });
        Ok(quiet && waited.is_err())
    }
}

/// Adds an association with a key of its own kind.
fn add(to: &str, spi: u32) -> String {
    let from = if to.contains(':') { "2001:db8::1" } else { "192.0.2.1" };
    format!(
        "ip xfrm state add src {from} dst {to} proto esp spi {spi:#x} mode tunnel \
         aead 'rfc4106(gcm(aes))' 0x{} 128",
        "4b".repeat(36)
    )
}

fn come_and_go() -> Result<(), Failed> {
    let namespace = netns::make()?;
    let within = |script: &str| netns::within(Some(&namespace), || run(script));
    let mut watched = Watched::open(&namespace)?;
    assert_eq!(watched.list()?, Vec::<String>::new());
    assert!(watched.is_quiet()?);

    within(&add("192.0.2.2", 0x1001))?;
    assert_eq!(watched.after_news()?, ["192.0.2.2 1001"]);
    within(&add("2001:db8::2", 0xFFFF_FFFF))?;
    let both = ["192.0.2.2 1001", "2001:db8::2 ffffffff"];
    assert_eq!(watched.after_news()?, both);
    // Of another protocol; an SPI is its protocol's own (RFC 4301, section 4.1).
    within("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto ah spi 0x1002 auth 'hmac(sha256)' 0x4b4b4b4b")?;
    assert_eq!(watched.after_news()?, both);
    // Set aside for a key exchange that goes on.
    within("ip xfrm state allocspi src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel reqid 7 min 0x2000 max 0x2000")?;
    assert_eq!(watched.list()?, ["192.0.2.2 1001", "192.0.2.2 2000", "2001:db8::2 ffffffff"]);

    assert!(watched.is_quiet()?);
    within("ip xfrm state delete src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001")?;
    assert_eq!(watched.after_news()?, ["192.0.2.2 2000", "2001:db8::2 ffffffff"]);
    within("ip xfrm state flush")?;
    assert_eq!(watched.after_news()?, Vec::<String>::new());
    assert!(watched.is_quiet()?);
    Ok(())
}

fn other_namespace() -> Result<(), Failed> {
    let (here, there) = (netns::make()?, netns::make()?);
    let (mut here, mut watched) = (Watched::open(&here)?, Watched::open(&there)?);
    netns::within(Some(&there), || run(&add("192.0.2.2", 0x1001)))?;
    assert_eq!(watched.after_news()?, ["192.0.2.2 1001"]);
    assert_eq!(here.list()?, Vec::<String>::new());
    assert!(here.is_quiet()?);
    Ok(())
}

fn expires() -> Result<(), Failed> {
    let namespace = netns::make()?;
    let mut watched = Watched::open(&namespace)?;
    let short = format!("{} limit time-hard 2", add("192.0.2.2", 0x1001));
    netns::within(Some(&namespace), || run(&short))?;
    assert_eq!(watched.after_news()?, ["192.0.2.2 1001"]);
    assert_eq!(watched.after_news()?, Vec::<String>::new());
    Ok(())
}

/// Without anybody reading them, the news outgrow the socket's room.
#[expect(clippy::disallowed_methods, reason = "how long the kernel takes is of interest")]
fn thousands() -> Result<(), Failed> {
    const COUNT: u32 = 2_000;
    let namespace = netns::make()?;
    let mut watched = Watched::open(&namespace)?;
    let mut batch = String::new();
    for spi in 0x1000..0x1000 + COUNT {
        writeln!(batch, "{}", add("192.0.2.2", spi).trim_start_matches("ip ").replace('\'', ""))?;
    }
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), batch)?;
    netns::within(Some(&namespace), || run(&format!("ip -batch {}", file.path().display())))?;
    let expected: BTreeSet<_> = (0x1000..0x1000 + COUNT).map(|spi| format!("192.0.2.2 {spi:x}")).collect();
    let begin = std::time::Instant::now();
    assert_eq!(watched.after_news()?.into_iter().collect::<BTreeSet<_>>(), expected);
    println!("{COUNT} associations were listed in {:?}", begin.elapsed());
    assert!(watched.is_quiet()?);
    Ok(())
}

fn unprivileged() -> Result<(), Failed> {
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"])
        .arg(std::env::current_exe()?)
        .env(UNPRIVILEGED, "1")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "PermissionDenied: seeing the kernel's security associations needs CAP_NET_ADMIN";
    if said.starts_with(expected) { Ok(()) } else { Err(format!("it said {said:?} {error:?}").into()) }
}

/// What [`unprivileged`] reads.
pub(crate) fn say_what_is_seen() {
    match xfrm::open() {
        Ok(_) => println!("opened"),
        Err(error) => println!("{:?}: {error}", error.kind()),
    }
}
