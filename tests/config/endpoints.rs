//! What `[[endpoint]]` means.

use std::time::Duration;

use adit::config::{Config, Endpoint};

use crate::{Fixtures, good, parse};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn usual(name: &str, address: &str) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        address: address.parse().unwrap(),
        source: None,
        netns: None,
        mark: 0,
        interval: secs(600),
        retry_interval: secs(30),
        timeout: secs(1),
        count: 3,
    }
}

#[test]
fn endpoints_are_as_written_and_as_usual_where_nothing_is() {
    let config = Fixtures::new().load("endpoints.toml");
    let mail = Endpoint {
        source: Some("2001:db8::1".parse().unwrap()),
        netns: Some(adit::config::Netns::read("blue").unwrap()),
        mark: 7,
        interval: secs(20),
        retry_interval: secs(5),
        timeout: Duration::from_millis(250),
        count: 1,
        ..usual("mail", "2001:db8:20::25")
    };
    let often = Endpoint { interval: secs(10), retry_interval: secs(10), ..usual("often", "10.20.0.6") };
    assert_eq!(config.endpoints, [usual("erp", "10.20.0.5"), mail, often]);
    assert_eq!(parse(&config.effective()).endpoints, config.endpoints);
}

#[test]
fn there_are_so_many_endpoints_at_most() {
    let block = |n: u32| format!("[[endpoint]]\nname = \"e{n}\"\naddress = \"10.20.{}.{}\"\n", n / 256, n % 256);
    let text = |count: u32| (0..count).map(block).collect::<String>();
    assert_eq!(good(Config::parse("/adit.toml", &text(4_096))).endpoints.len(), 4_096);
    let problems = Config::parse("/adit.toml", &text(4_098)).err().unwrap();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let line = 1 + 3 * 4_096;
    let why = "there are 4098 endpoints, more than 4096: remove this one and those after it";
    assert_eq!(problems, [format!("/adit.toml:{line}:1: {why}")]);
}
