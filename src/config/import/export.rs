//! What is in an export. Each answer of the API is an envelope around a list under a name; a file may hold one of
//! them, several one after the other, a list of them, or an object with several lists.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Deserializer, Value};

use super::check::Check;
use super::json::{Item, Problems, Report, brief};

/// Letters of a description that a comment repeats.
const DESCRIPTION: usize = 200;

/// Everything that the files hold.
#[derive(Debug, Default)]
pub(super) struct Export {
    pub(super) tunnels: Vec<Tunnel>,
    pub(super) routes: Vec<Route>,
    /// What has been taken in, as it is written: a second one of the same is no other one.
    known: BTreeSet<String>,
}

/// What a tunnel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gre,
    Ipsec,
    /// A cable, with GRE over it.
    InterconnectGre,
    /// A cable.
    Interconnect,
}

/// A tunnel as the API has it.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) customer: Option<IpAddr>,
    pub(super) cloudflare: Option<IpAddr>,
    /// Cloudflare's inner addresses, the first of IPv4.
    pub(super) interfaces: Vec<IpNet>,
    pub(super) ttl: Option<i64>,
    pub(super) check: Check,
    /// What has no counterpart here, in words.
    pub(super) beside: Vec<String>,
}

/// A static route as the API has it.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) prefix: IpNet,
    pub(super) nexthop: IpAddr,
    pub(super) priority: i64,
    pub(super) weight: Option<i64>,
    pub(super) description: Option<String>,
    /// Where only it holds, in words.
    pub(super) scope: Option<String>,
}

/// What a list of the API holds.
#[derive(Debug, Clone, Copy)]
enum What {
    Gre,
    Ipsec,
    Interconnect,
    Route,
}

/// The names of the lists, and of a single one in the answer about it.
const LISTS: [(&str, What); 9] = [
    ("gre_tunnels", What::Gre),
    ("gre_tunnel", What::Gre),
    ("ipsec_tunnels", What::Ipsec),
    ("ipsec_tunnel", What::Ipsec),
    ("interconnects", What::Interconnect),
    ("interconnect", What::Interconnect),
    ("cf_interconnects", What::Interconnect),
    ("routes", What::Route),
    ("route", What::Route),
];

impl Export {
    /// Reads all files, each with its name.
    ///
    /// # Errors
    /// Everything that is malformed.
    pub(super) fn read(files: &[(String, Vec<u8>)]) -> Result<Self, Problems> {
        let (report, mut export) = (Report::default(), Self::default());
        for (file, bytes) in files {
            let documents = documents(file, bytes, &report);
            for (number, document) in documents.iter().enumerate() {
                let top = if documents.len() > 1 { format!("(document {})", number + 1) } else { String::new() };
                export.gather(&Item::document(document, file, top, &report));
            }
        }
        report.conclude(export)
    }

    /// Takes in a document, or a part of one.
    fn gather(&mut self, item: &Item<'_>) {
        if item.value.is_array() {
            item.elements().iter().for_each(|element| self.gather(element));
            return;
        }
        if item.value.get("success") == Some(&Value::Bool(false)) {
            refused(item);
        } else if item.value.get("result").is_some() {
            item.field("result").iter().for_each(|result| self.gather(result));
        } else if LISTS.iter().any(|(name, _)| item.value.get(name).is_some()) {
            LISTS.iter().for_each(|(name, what)| self.named(item, name, *what));
        } else if let Some(what) = guessed(item.value) {
            self.take(item, what);
        } else {
            item.complain(
                "this holds none of gre_tunnels, ipsec_tunnels, interconnects and routes; expected an answer of \
                 GET /accounts/{account_id}/magic/gre_tunnels, …/ipsec_tunnels, …/cf_interconnects or …/routes",
            );
        }
    }

    /// Takes in what stands under the name of a list: one, many, or the whole answer about it.
    fn named(&mut self, item: &Item<'_>, name: &str, what: What) {
        let Some(field) = item.field(name) else { return };
        if field.value.get("result").is_some() {
            self.gather(&field);
        } else if field.value.is_array() {
            field.elements().iter().for_each(|element| self.take(element, what));
        } else {
            self.take(&field, what);
        }
    }

    fn take(&mut self, item: &Item<'_>, what: What) {
        if !item.value.is_object() {
            item.complain(super::json::expected("an object", item.value));
            return;
        }
        if !self.known.insert(item.value.to_string()) {
            return;
        }
        match what {
            What::Gre => self.tunnels.extend(gre(item)),
            What::Ipsec => self.tunnels.extend(ipsec(item)),
            What::Interconnect => self.tunnels.extend(interconnect(item)),
            What::Route => self.routes.extend(route(item)),
        }
    }
}

/// The JSON values of a file, one after the other.
fn documents(file: &str, bytes: &[u8], report: &Report) -> Vec<Value> {
    // PowerShell begins its files so.
    let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut documents = Vec::new();
    for document in Deserializer::from_slice(text).into_iter::<Value>() {
        match document {
            Ok(document) => documents.push(document),
            Err(error) => {
                let place = format!("{}:{}", error.line(), error.column());
                let message = error.to_string();
                let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
                report.add(file, place, format!("not JSON: {message}; save the API's answer as it is"));
                return Vec::new();
            }
        }
    }
    if documents.is_empty() {
        report.add(file, "", "there is nothing in it; expected JSON, the API's answer as it is");
    }
    documents
}

/// The API has refused to answer, and says why.
fn refused(item: &Item<'_>) {
    let first = item.value.get("errors").and_then(|errors| errors.get(0));
    let message = first.and_then(|error| error.get("message")).and_then(Value::as_str).unwrap_or("it says no reason");
    let code = first.and_then(|error| error.get("code")).and_then(Value::as_i64);
    let code = code.map_or_else(String::new, |code| format!(" (code {code})"));
    let message = brief(message, DESCRIPTION);
    item.complain(format!("the API refused to answer: {message}{code}; ask it again, with a token that may read"));
}

/// What a bare object is, by what only such a one has.
fn guessed(value: &Value) -> Option<What> {
    let has = |key: &str| value.get(key).is_some();
    if has("cloudflare_gre_endpoint") || has("customer_gre_endpoint") {
        Some(What::Gre)
    } else if has("nexthop") {
        Some(What::Route)
    } else if has("cloudflare_endpoint") {
        Some(What::Ipsec)
    } else if has("colo_name") {
        Some(What::Interconnect)
    } else {
        None
    }
}

fn gre(item: &Item<'_>) -> Option<Tunnel> {
    item.require("cloudflare_gre_endpoint", "\"203.0.113.1\"");
    let customer = item.address("customer_gre_endpoint");
    let cloudflare = item.address("cloudflare_gre_endpoint");
    tunnel(item, Kind::Gre, [customer, cloudflare])
}

fn ipsec(item: &Item<'_>) -> Option<Tunnel> {
    item.require("cloudflare_endpoint", "\"203.0.113.1\"");
    let (customer, cloudflare) = (item.address("customer_endpoint"), item.address("cloudflare_endpoint"));
    tunnel(item, Kind::Ipsec, [customer, cloudflare])
}

fn interconnect(item: &Item<'_>) -> Option<Tunnel> {
    let cloudflare = item.field("gre").and_then(|gre| gre.address("cloudflare_endpoint"));
    let kind = if cloudflare.is_some() { Kind::InterconnectGre } else { Kind::Interconnect };
    tunnel(item, kind, [None, cloudflare])
}

fn tunnel(item: &Item<'_>, kind: Kind, [customer, cloudflare]: [Option<IpAddr>; 2]) -> Option<Tunnel> {
    item.require("name", "\"GRE_1\"");
    let name = item.text("name");
    let is_v6_alone = item.field("interface_address").is_none() && item.field("interface_address6").is_some();
    if !is_v6_alone {
        item.require("interface_address", "\"10.213.0.8/31\"");
    }
    let interface = item.net("interface_address", "10.213.0.8/31");
    let interface6 = item.net("interface_address6", "2001:db8::8/127");
    let read = Tunnel {
        kind,
        name: name.unwrap_or_default().to_owned(),
        description: description(item),
        customer,
        cloudflare,
        interfaces: interface.into_iter().chain(interface6).collect(),
        ttl: item.integer("ttl"),
        check: item.field("health_check").map_or_else(Check::default, |check| Check::read(&check)),
        beside: beside(item),
    };
    name.map(|_| read)
}

fn description(item: &Item<'_>) -> Option<String> {
    item.text("description").map(|text| brief(text, DESCRIPTION))
}

/// What a tunnel has that is Cloudflare's own business, or the kernel's.
fn beside(item: &Item<'_>) -> Vec<String> {
    let mut beside = Vec::new();
    beside.extend(item.integer("mtu").filter(|mtu| *mtu != 0).map(|mtu| format!("mtu {mtu}")));
    for key in ["automatic_return_routing", "replay_protection", "allow_null_cipher"] {
        beside.extend(item.boolean(key).filter(|is| *is).map(|_| key.to_owned()));
    }
    beside.extend(item.text("colo_name").map(|colo| format!("colo_name {}", brief(colo, DESCRIPTION))));
    if let Some(bgp) = item.field("bgp") {
        let customer = bgp.integer("customer_asn").map_or_else(String::new, |asn| format!(" with AS {asn}"));
        let extra = texts(&bgp, "extra_prefixes");
        let extra = if extra.is_empty() { String::new() } else { format!(", which announces {extra} besides") };
        beside.push(format!("BGP{customer}{extra}"));
    }
    let fqdn = item.field("custom_remote_identities").and_then(|identities| identities.text("fqdn_id"));
    beside.extend(fqdn.map(|fqdn| format!("the IKE identity {}", brief(fqdn, DESCRIPTION))));
    let psk = item.field("psk_metadata").and_then(|psk| psk.text("last_generated_on"));
    beside.extend(psk.map(|when| format!("a pre-shared key made {}", brief(when, 40))));
    beside
}

/// A list of texts, in words.
fn texts(item: &Item<'_>, key: &str) -> String {
    let list = item.list(key);
    let texts: Vec<String> =
        list.iter().filter_map(|element| element.value.as_str()).map(|text| brief(text, 60)).collect();
    texts.join(", ")
}

fn route(item: &Item<'_>) -> Option<Route> {
    item.require("prefix", "\"10.20.0.0/16\"");
    item.require("nexthop", "\"10.213.0.9\"");
    let scope = item.field("scope").map(|scope| [texts(&scope, "colo_names"), texts(&scope, "colo_regions")]);
    let scope = scope.map(|[names, regions]| [names, regions].into_iter().filter(|text| !text.is_empty()));
    let scope = scope.map(|texts| texts.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty());
    item.require("priority", "100");
    let (prefix, nexthop) = (item.net("prefix", "10.20.0.0/16"), item.address("nexthop"));
    let (priority, weight) = (item.integer("priority"), item.integer("weight"));
    let description = description(item);
    Some(Route { prefix: prefix?, nexthop: nexthop?, priority: priority?, weight, description, scope })
}
