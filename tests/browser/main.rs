//! The status page in a real browser (Debian's Chromium, headless), before the built program on real packets.
//!
//! | file | holds |
//! | --- | --- |
//! | `driver` | a browser, driven over HTTP |
//!
//! With `ADIT_SCREENSHOTS=FOLDER` it leaves pictures. A trial that cannot run is skipped with its reason; with
//! `ADIT_REQUIRE_NETNS` and `ADIT_REQUIRE_TOOLS` it fails.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a trial that cannot go on must fail")]
#![allow(dead_code, reason = "each of the modules of others is of use in part")]

#[path = "../netns/by_hand.rs"]
mod by_hand;
mod driver;
#[path = "../netns/kit.rs"]
mod kit;
#[path = "../netns/sealed.rs"]
mod sealed;
#[path = "../netns/silent.rs"]
mod silent;
#[path = "../netns/site.rs"]
mod site;
#[path = "../netns/web.rs"]
mod web;
#[path = "../netns/world.rs"]
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};

use driver::Browser;
use kit::eventually;
use site::Site;
use world::{Case, World, case};

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // A browser is many processes.
    args.test_threads.get_or_insert(1);
    let world = World::enter(args.list);
    let missing = driver::missing();
    let trial = |case: Case| match &missing {
        None => case.trial(&world),
        Some(why) if std::env::var_os("ADIT_REQUIRE_TOOLS").is_some() => {
            let why = why.clone();
            Trial::test(case.name, move || Err(Failed::from(why)))
        }
        Some(why) => {
            eprintln!("skipped: {}: {why}", case.name);
            Trial::test(case.name, || Ok(())).with_ignored_flag(true)
        }
    };
    let cases = vec![
        case("a_tunnel_goes_down_and_comes_back_before_the_eyes", a_tunnel_goes_down_and_comes_back),
        case("a_picture_that_is_old_says_so", a_picture_that_is_old_says_so),
        case("a_slow_answer_makes_no_picture_old", a_slow_answer_makes_no_picture_old),
        case("it_shows_what_top_shows", it_shows_what_top_shows),
        case("keys_are_enough", keys_are_enough),
        case("nothing_that_is_shown_is_run", nothing_that_is_shown_is_run),
        case("nothing_leaves_for_elsewhere", nothing_leaves_for_elsewhere),
        case("it_fits_a_phone_and_both_schemes", it_fits_a_phone_and_both_schemes),
        case("very_many_tunnels_are_shown_in_part", very_many_tunnels),
    ];
    libtest_mimic::run(&args, cases.into_iter().map(trial).collect()).exit_code()
}

const PAGE: &str = "http://127.0.0.1:9911/";
const SETTINGS: &str = "metrics = \"127.0.0.1:9911\"\nstatus_page = true";

/// The far side's own address, which its kernel answers for.
const ENDPOINT: &str = "[[endpoint]]\nname = \"lab\"\naddress = \"192.0.2.11\"\ninterval = \"1s\"\ntimeout = \"5s\"\n";

/// The text of a tunnel's row.
fn row(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('tr.tunnel')].find(row => row.querySelector('.name').textContent === '{name}')"
    )
}

/// That a row has a state, in its word and in its shape.
fn shows(name: &str, state: &str) -> String {
    let row = row(name);
    format!(
        "{row}?.querySelector('.state span').textContent === '{state}' && {row}.querySelector('use').getAttribute('href') === '#{state}'"
    )
}

fn site() -> Site {
    let site = Site::new();
    site.serve_metrics(SETTINGS);
    site
}

/// Adds sections to the configuration.
fn add(site: &Site, sections: &str) {
    site.write("adit.conf", &format!("{}\n{sections}", site.read("adit.conf")));
}

/// That an event's line has all of these texts.
fn hears(parts: &[&str]) -> String {
    let parts = json!(parts);
    format!(
        "[...document.querySelectorAll('#events p')].some(p => {parts}.every(part => p.textContent.includes(part)))"
    )
}

/// A browser before the page.
fn look(site: &Site) -> Browser {
    let browser = Browser::open(&site.pair.near);
    browser.load(PAGE);
    browser
}

fn a_tunnel_goes_down_and_comes_back() {
    let site = site();
    let (_daemon, [ams, _fra]) = site.healthy();
    let browser = look(&site);
    for name in site::TUNNELS {
        browser.await_true(&shows(name, "healthy"));
    }
    browser.run(&format!("window.before = {}; window.since = 1", row("ams-1")));
    drop(ams);
    browser.await_true(&shows("ams-1", "down"));
    browser.await_true("document.title === '(1 down) adit'");
    browser.await_true("document.querySelector('#events li').textContent.length > 0");
    browser.await_true("[...document.querySelectorAll('#events p')].some(p => p.textContent.includes('traffic moves from ams-1 to fra-1'))");
    browser.await_true("[...document.querySelectorAll('#events p')].some(p => p.textContent.includes('ams-1: ') && p.textContent.includes('→ down'))");
    assert_eq!(
        browser.run(&format!("return window.since === 1 && window.before === {}", row("ams-1"))),
        true,
        "in place"
    );
    // The sick one first.
    assert_eq!(browser.run("return document.querySelector('tr.tunnel .name').textContent"), "ams-1");
    assert_eq!(browser.run("return document.getElementById('voice').textContent"), "ams-1 is down");
    browser.run(&format!("{}.querySelector('.name').click()", row("ams-1")));
    browser.await_true("document.querySelector('.detail .routes')?.textContent.includes('10.20.0.0/16')");
    browser.keep_picture("down");
    let _ams = site.far("ams-1");
    browser.await_true(&shows("ams-1", "healthy"));
    browser.await_true("document.title === 'adit'");
    assert_eq!(browser.errors(), [""; 0]);
}

fn a_picture_that_is_old_says_so() {
    let site = site();
    let daemon = site.daemon();
    let browser = look(&site);
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 2 && document.getElementById('old').hidden");
    drop(daemon);
    browser.await_true("!document.getElementById('old').hidden && document.body.classList.contains('old')");
    let said = browser.run("return document.getElementById('old').textContent");
    assert!(said.as_str().unwrap().contains("what is shown is of "), "{said}");
    // What is read aloud is that, and not each second.
    let aloud = "return [...document.querySelectorAll('#old, #old *')].filter(e => e.role || e.ariaLive).map(e => e.textContent)";
    let age = || browser.run("return document.getElementById('age').textContent");
    let before = age();
    eventually("another second", || age() != before);
    let aloud = browser.run(aloud);
    assert_eq!(aloud.as_array().map(Vec::len), Some(1), "{aloud}");
    assert!(aloud[0].as_str().unwrap().starts_with("what is shown is of "), "{aloud}");
    assert!(age().as_str().unwrap().starts_with("No answer for "), "{}", age());
    assert_eq!(browser.run("return document.querySelectorAll('tr.tunnel').length"), 2, "what was known stays");
    assert_eq!(browser.run("return document.title"), "(old) adit");
    browser.keep_picture("old");
    let _daemon = site.daemon();
    browser.await_true("document.getElementById('old').hidden && !document.body.classList.contains('old')");
}

/// A long answer is asked for less often: until the next one is due, the picture is as new as it can be.
fn a_slow_answer_makes_no_picture_old() {
    let site = site();
    let _daemon = site.daemon();
    let browser = Browser::open(&site.pair.near);
    let slow = "const real = window.fetch; window.asked = 0;
         window.fetch = async (...wanted) => {
           if (String(wanted[0]).includes('tunnels')) {
             window.asked += 1;
             await new Promise(done => setTimeout(done, 1500));
           }
           return real(...wanted);
         };
         setInterval(() => { if (document.getElementById('old')?.hidden === false) window.wasOld = true; }, 100);";
    browser.beneath("Page.addScriptToEvaluateOnNewDocument", json!({"source": slow}));
    browser.load(PAGE);
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 2");
    for cycle in 2..=3 {
        browser.await_true(&format!("window.asked >= {cycle}"));
    }
    assert_eq!(browser.run("return window.wasOld === undefined"), true);
}

fn it_shows_what_top_shows() {
    let site = site();
    let _daemon = site.daemon();
    let browser = look(&site);
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 2");
    assert_eq!(browser.run("return document.getElementById('endpoints').hidden"), true, "there are none");
    let targets = "[[tunnel]]\nname = \"dev-1\"\nencapsulation = \"device\"\ninterface_address = \"192.0.2.1/30\"\n\
                   [tunnel.health_check]\ntargets = [\"192.0.2.11\", \"192.0.2.12\"]\nquorum = 1\n";
    add(&site, &format!("{ENDPOINT}{targets}"));
    site.say(&["reload"]);
    site.say(&["drain", "ams-1", "--down", "--for", "2h", "--reason", "line card"]);
    browser.await_true(
        "['lab', '192.0.2.11', 'reachable', 'answered'].every(part => document.querySelector('#endpoints:not([hidden]) tbody tr')?.textContent.includes(part))",
    );
    assert_eq!(browser.run("return document.querySelector('#endpoints use').getAttribute('href')"), "#healthy");
    browser.await_true(&hears(&["endpoint lab: unknown → reachable; answered after "]));
    browser.await_true(&hears(&["ams-1: drained as down until ", ": line card (by user ", "; penalty "]));
    browser.await_true(&format!(
        "/drained \\(1 h 59 min left\\)/.test({}?.querySelector('.also').textContent)",
        row("ams-1")
    ));
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 3");
    browser.run("document.querySelectorAll('.name').forEach(button => button.click())");
    let detail = |name: &str| format!("{}.nextElementSibling.textContent", row(name));
    browser.await_true(&format!("/as down until .*: line card \\(since .*, by user /.test({})", detail("ams-1")));
    browser.await_true(&format!("{}.includes('any 1 of 2 targets must answer')", detail("dev-1")));
    browser.await_true(&format!("/192\\.0\\.2\\.11.*192\\.0\\.2\\.12/.test({})", detail("dev-1")));
    browser.keep_picture("all");
    // By its reason a drain is found.
    browser.run("const field = document.getElementById('filter'); field.value = 'line card'; field.dispatchEvent(new Event('input'))");
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 1");
    assert_eq!(browser.errors(), [""; 0]);
}

fn keys_are_enough() {
    const ENTER: &str = "\u{e007}";
    const ESCAPE: &str = "\u{e00c}";
    const TAB: &str = "\u{e004}";
    let site = site();
    let _daemon = site.daemon();
    let browser = look(&site);
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 2");
    browser.press(&["/", "f", "r", "a"]);
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 1");
    assert_eq!(browser.run("return document.querySelector('tr.tunnel .name').textContent"), "fra-1");
    assert_eq!(browser.run("return document.getElementById('shown').textContent"), "1 of 2");
    // From the field over the columns' heads to the row.
    let mut reached = false;
    for _ in 0..20 {
        browser.press(&[TAB]);
        reached = browser.run("return document.activeElement.className === 'name'") == true;
        if reached {
            break;
        }
    }
    assert!(reached, "no row is reached by the tab key");
    browser.press(&[ENTER]);
    browser.await_true(
        "document.activeElement.getAttribute('aria-expanded') === 'true' && document.querySelector('.detail .routes')",
    );
    // The focus stays where it is while the picture changes.
    let before = browser.run("return document.getElementById('pulse').textContent");
    eventually("the next picture", || browser.run("return document.getElementById('pulse').textContent") != before);
    assert_eq!(browser.run("return document.activeElement.textContent"), "fra-1");
    browser.press(&["/", ESCAPE]);
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 2");
    let sort =
        "const head = [...document.querySelectorAll('th button')].find(b => b.textContent === 'Tunnel'); head.focus();";
    browser.run(sort);
    browser.press(&[ENTER]);
    browser.await_true("document.querySelector('th').getAttribute('aria-sort') === 'ascending'");
    browser.press(&[ENTER]);
    browser.await_true("document.querySelector('th').getAttribute('aria-sort') === 'descending'");
    assert_eq!(browser.run("return document.querySelector('tr.tunnel .name').textContent"), "fra-1");
    // Whatever can be used has a name.
    let nameless = "return [...document.querySelectorAll('button, input, select, a')].filter(e => !(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label'))).length";
    assert_eq!(browser.run(nameless), 0);
}

/// Text that would run if any of it were read as HTML, as a link or as a script.
const HOSTILE: &str = "</td></script><img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script><svg onload=\"window.hacked=1\"> '\" javascript:window.hacked=1";

/// Has every text that the daemon says be a hostile one, but for what the page needs to go on.
fn poison() -> String {
    format!(
        "const hostile = {}; const real = window.fetch;
         const poison = (value, key) => Array.isArray(value) ? value.map(one => poison(one)) :
           value && typeof value === 'object' ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, poison(v, k)])) :
           typeof value === 'string' && key !== 'kind' ? hostile + value : value;
         window.fetch = async (...wanted) => {{
           const answer = await real(...wanted), text = await answer.text();
           const lines = text.split('\\n').filter(line => line).map(line => JSON.stringify(poison(JSON.parse(line))));
           const told = String(wanted[0]).includes('events') ? [...lines, JSON.stringify({{kind: hostile, [hostile]: hostile, tunnel: hostile}})] : lines;
           return new Response(told.join('\\n'), {{status: answer.status, headers: answer.headers}});
         }};",
        json!(HOSTILE)
    )
}

fn nothing_that_is_shown_is_run() {
    let site = site();
    add(&site, ENDPOINT);
    let (_daemon, [ams, _fra]) = site.healthy();
    drop(ams);
    site.await_state("ams-1", "down");
    // A text that comes all the way: from a file that was to be reloaded.
    site.write("adit.conf", "\"<img src=x onerror=window.hacked=1>\" = 1\n");
    assert_eq!(site.adit(&["reload"]).status.code(), Some(78));
    let browser = look(&site);
    browser.await_true("[...document.querySelectorAll('#events p')].some(p => p.textContent.includes('<img src=x onerror=window.hacked=1>'))");
    assert_eq!(
        browser.run(
            "return [document.querySelectorAll('img, #events svg:not(.mark)').length, window.hacked === undefined]"
        ),
        json!([0, true])
    );
    // And from a daemon that is not to be trusted in anything.
    browser.beneath("Page.addScriptToEvaluateOnNewDocument", json!({"source": poison()}));
    browser.load(PAGE);
    browser.await_true(
        "document.querySelectorAll('tr.tunnel').length === 2 && document.querySelectorAll('#events li').length > 2",
    );
    browser.run("document.querySelectorAll('.name').forEach(button => button.click())");
    browser.await_true("document.querySelectorAll('.detail dl').length === 2");
    let before = browser.run("return document.getElementById('pulse').textContent");
    eventually("the next picture", || browser.run("return document.getElementById('pulse').textContent") != before);
    let counted = "return [document.querySelectorAll('img, iframe, object, embed, link:not([rel=icon])').length, document.scripts.length,
         document.querySelectorAll('svg').length - document.querySelectorAll('svg.mark').length, window.hacked === undefined]";
    assert_eq!(browser.run(counted), json!([0, 1, 1, true]));
    let text = browser.run("return document.body.innerText");
    assert!(text.as_str().unwrap().matches("onerror=\"window.hacked=1\"").count() > 10, "{text}");
    browser.keep_picture("hostile");
}

fn nothing_leaves_for_elsewhere() {
    let site = site();
    let (_daemon, _far) = site.healthy();
    let browser = look(&site);
    browser.await_true(&shows("ams-1", "healthy"));
    browser.run("document.querySelector('.name').click()");
    browser.await_true("document.querySelector('.detail .routes')");
    let fetched = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)");
    let fetched: Vec<&str> = fetched.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(fetched.len() >= 4, "{fetched:?}");
    for name in &fetched {
        assert!(name.starts_with(PAGE) || name.starts_with("data:"), "{fetched:?}");
    }
    // What would leave, or run, cannot: not by a script of the page's own.
    let leave = "fetch('http://192.0.2.11:9911/').then(() => done('left'), error => done(error.name))";
    assert_eq!(browser.run_until_done(leave), "TypeError");
    let picture = "const image = new Image(); image.onload = () => done('left'); image.onerror = () => done('blocked'); image.src = 'http://127.0.0.1:9911/metrics'";
    assert_eq!(browser.run_until_done(picture), "blocked");
    let inline = "try { document.body.innerHTML = '<p>x'; done('written') } catch (error) { done(error.name) }";
    assert_eq!(browser.run_until_done(inline), "TypeError");
    let violations = browser.errors().join("\n");
    for word in ["connect-src", "img-src", "TrustedHTML"] {
        assert!(violations.contains(word), "{word}: {violations}");
    }
    // Nor into a frame of somebody else's page.
    let headers = site.fetch("GET", "/", "host: localhost\r\n").1;
    assert!(headers.contains("frame-ancestors 'none'"), "{headers}");
}

/// The ratio of contrast of an element's colour to what is behind it, as WCAG 2 has it.
const CONTRAST: &str = "
    const parts = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = element => { for (let e = element; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
    const all = [...document.querySelectorAll('td, .state span, .name, p, dd, dt, th button, #census button, time, footer span')].filter(e => e.textContent.trim() && e.offsetParent);
    const ratio = element => { const [a, b] = [light(parts(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a); return (a + 0.05) / (b + 0.05); };
    return all.filter(e => !e.closest('.none')).map(e => [ratio(e), e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 40)]).sort((a, b) => a[0] - b[0])[0];";

fn it_fits_a_phone_and_both_schemes() {
    let site = site();
    // The longest name that there can be, without a place to break it.
    let long = "n".repeat(64);
    site.write("adit.conf", &site.read("adit.conf").replace("fra-1", &long));
    add(&site, &ENDPOINT.replace("lab", &long.replace('n', "e")));
    let far = site.far("ams-1");
    let _daemon = site.daemon();
    site.await_state("ams-1", "healthy");
    let browser = look(&site);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for (size, width) in [("phone", 360), ("tablet", 800), ("desk", 1_280)] {
            browser.resize(width, 800);
            browser.load(PAGE);
            browser.await_true(&format!("{} && {}", shows("ams-1", "healthy"), shows(&long, "down")));
            browser.await_true("document.querySelector('#endpoints tbody tr')");
            browser.keep_picture(&format!("{size}-{scheme}"));
            browser.run("document.querySelectorAll('.name').forEach(button => button.click())");
            browser.await_true("document.querySelectorAll('.detail .routes').length === 2");
            browser.keep_picture(&format!("{size}-{scheme}-open"));
            let widest = "return Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll('body *')].filter(e => e.offsetParent && !e.closest('.away, thead')).map(e => Math.round(e.getBoundingClientRect().right)))";
            let found = browser.run(widest).as_u64().unwrap();
            assert!(found <= u64::from(width), "{size}, {scheme}: {found} of {width}");
            let narrowest = "return Math.min(...[...document.querySelectorAll('#events p, .detail dd')].map(e => e.getBoundingClientRect().width))";
            assert!(browser.run(narrowest).as_f64().unwrap() >= 90.0, "{size}, {scheme}: text is squeezed");
            let least = browser.run(CONTRAST);
            assert!(least[0].as_f64().unwrap() >= 4.5, "{size}, {scheme}: {least}");
        }
        let ground = browser.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)");
        let sum: u64 = ground.as_array().unwrap().iter().map(|part| part.as_u64().unwrap()).sum();
        assert_eq!(sum > 384, scheme == "light", "{scheme}: {ground}");
    }
    drop(far);
}

fn very_many_tunnels() {
    let site = Site::new();
    let tunnel = |number: u32| {
        format!(
            "[[tunnel]]\nname = \"t{number}\"\nencapsulation = \"device\"\ninterface_address = \"192.0.2.1/30\"\n\
             [tunnel.health_check]\nenabled = {}\ntarget = \"10.50.{}.{}\"\n",
            number.is_multiple_of(2),
            number / 250,
            number % 250 + 1
        )
    };
    let tunnels: String = (0..3_000).map(tunnel).collect();
    site.write("adit.conf", &format!("[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"state\"\n{SETTINGS}\n{tunnels}"));
    let _daemon = site.daemon();
    let browser = look(&site);
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 200");
    let said: Value = browser
        .run("return [document.getElementById('shown').textContent, document.getElementById('more').textContent]");
    assert_eq!(said, json!(["3\u{202f}000 tunnels", "Show more (2\u{202f}800 left)"]));
    browser.run("document.getElementById('more').click()");
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 400");
    browser.run("const field = document.getElementById('filter'); field.value = 't2999'; field.dispatchEvent(new Event('input'))");
    browser.await_true("document.querySelectorAll('tr.tunnel').length === 1");
    assert!(
        browser.run("return document.querySelector('tr.tunnel').innerText").as_str().unwrap().contains("not checked")
    );
}
