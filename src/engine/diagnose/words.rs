//! Conclusions in words: one sentence each, and what to change at which end, with the command.

use std::net::IpAddr;

use super::conclude::{Conclusion, Culprit, End};
use super::findings::{Findings, Part};
use crate::wire::{Direction, Encapsulation, Family};

impl Findings {
    /// What probes are wrapped in, and the number by which a filter knows it.
    pub(super) fn wrapped(&self) -> &'static str {
        match self.encapsulation {
            Encapsulation::Gre(_) => "GRE (IP protocol 47)",
            Encapsulation::Esp(shape) if shape.udp() => "ESP in UDP (port 4500)",
            Encapsulation::Esp(_) => "ESP (IP protocol 50)",
            Encapsulation::Device => "what the tunnel device sends",
        }
    }

    /// What is called otherwise in IPv6, inside the tunnel.
    pub(super) fn by_family(&self, v4: &'static str, v6: &'static str) -> &'static str {
        match self.inner.family() {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// The type by which a firewall knows an echo reply.
    fn echo_reply(&self) -> &'static str {
        self.by_family("icmp type echo-reply", "icmpv6 type echo-reply")
    }

    /// A setting of the far router's tunnel device. IPv6 has none of those that matter here.
    fn far_setting(&self, setting: &str, value: u8) -> Option<String> {
        (self.inner.family() == Family::V4).then(|| {
            format!("at the far router: sysctl -w net.ipv4.conf.DEV.{setting}={value} (DEV is its tunnel device)")
        })
    }

    /// What makes the far router refuse a source that it has a better way to.
    fn source_check(&self) -> String {
        self.far_setting("rp_filter", 0).map_or_else(
            || "at the far router: nft list ruleset: look for a rule with fib saddr . iif oif missing drop".to_owned(),
            |setting| setting + ", and the same of net.ipv4.conf.all: the higher one holds",
        )
    }
}

pub(super) fn at_fault(
    culprit: Culprit,
    end: End,
    sentence: String,
    remedy: impl IntoIterator<Item = String>,
) -> Conclusion {
    Conclusion { ok: false, culprit, end, sentence, remedy: remedy.into_iter().collect() }
}

pub(super) fn well(it: &Findings) -> Conclusion {
    let rtt = it.answering().filter_map(|leg| leg.rtt_us).min().unwrap_or(0);
    let mtu = it.mtu.map(|mtu| format!(", and packets of up to {} bytes pass{}", mtu.inner, mtu.between()));
    let mtu = mtu.unwrap_or_default();
    let sentence =
        format!("{} is well: its probes are answered in {}.{:02} ms{mtu}", it.name, rtt / 1_000, rtt % 1_000 / 10);
    Conclusion { ok: true, culprit: Culprit::None, end: End::None, sentence, remedy: Vec::new() }
}

pub(super) fn leak(it: &Findings, came: &str) -> Conclusion {
    if it.style.direction == Direction::Unidirectional {
        let sentence = format!("answers come {came}, where direction = \"unidirectional\" wants them bare");
        let remedy = [
            "on this host: write direction = \"bidirectional\"".to_owned(),
            format!("at the far router: ip route get {} must not lead into the tunnel", it.inner.local()),
        ];
        return at_fault(Culprit::Leak, End::Far, sentence, remedy);
    }
    let local = it.inner.local();
    let sentence = format!("answers leak past {}: they come {came}, not through it", it.name);
    let mut remedy = vec![format!("at the far router: ip route replace {local} dev DEV (DEV is its tunnel device)")];
    if !it.any_return && !came.starts_with("bare") {
        remedy.push("on this host: write return_path = \"any\", if that way is meant".to_owned());
    }
    at_fault(Culprit::Leak, End::Far, sentence, remedy)
}

pub(super) fn reply(it: &Findings) -> Conclusion {
    let sentence = |why: &str| format!("the far router answers requests, but does not route echo replies back: {why}");
    let request = || "on this host: or write type = \"request\"".to_owned();
    if it.answers(Part::Tracked) {
        let why = "its connection tracking takes them for invalid (they pass where a request went before)";
        let remedy = [
            format!(
                "at the far router, before the rule that drops ct state invalid: nft insert rule inet filter forward \
                 {} accept",
                it.echo_reply()
            ),
            request(),
        ];
        return at_fault(Culprit::ReplyFilter, End::Far, sentence(why), remedy);
    }
    if it.answers(Part::Foreign) {
        let why = "their source is an address of its own (they pass with another source)";
        if let Some(setting) = it.far_setting("accept_local", 1) {
            return at_fault(Culprit::AcceptLocal, End::Far, sentence(why), [setting, request()]);
        }
        // No setting of IPv6 does that, so it is a rule.
        let rule = "at the far router: nft list ruleset: look for a rule that drops sources of its own".to_owned();
        return at_fault(Culprit::Forwarding, End::Far, sentence(why), [rule, request()]);
    }
    let why = "it does not forward between its tunnel and itself";
    let mut remedy = vec![format!(
        "at the far router: sysctl -w {}=1",
        it.by_family("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
    )];
    remedy.extend(it.far_setting("accept_local", 1));
    remedy.push(format!("at the far router: nft list ruleset: the forward chain must accept {}", it.echo_reply()));
    if it.is_esp() {
        remedy.insert(0, "at the far router: ip xfrm policy needs one with dir fwd for these addresses".to_owned());
    }
    remedy.push(request());
    at_fault(Culprit::Forwarding, End::Far, sentence(why), remedy)
}

pub(super) fn echo_filter(it: &Findings) -> Conclusion {
    let sentence = format!(
        "the far router routes echo replies back, but answers no requests to {}: the tunnel carries packets",
        it.inner.far()
    );
    let mut remedy = vec![
        format!(
            "at the far router: sysctl -w {}=0",
            it.by_family("net.ipv4.icmp_echo_ignore_all", "net.ipv6.icmp.echo_ignore_all")
        ),
        format!(
            "at the far router: ip addr show to {}; nft list ruleset: it must let echo requests in",
            it.inner.far()
        ),
        "on this host: or write type = \"reply\"".to_owned(),
    ];
    if it.is_esp() {
        remedy.insert(0, "at the far router: ip xfrm policy needs one with dir in for these addresses".to_owned());
    }
    at_fault(Culprit::EchoFilter, End::Far, sentence, remedy)
}

/// Which of how many targets say nothing, and how many may.
pub(super) fn silent_targets(it: &Findings, silent: &[IpAddr]) -> String {
    let names: Vec<String> = silent.iter().map(IpAddr::to_string).collect();
    let (count, all, names, quorum) = (silent.len(), it.targets(), names.join(", "), it.quorum);
    let are = if count == 1 { "is" } else { "are" };
    format!("{count} of {all} targets {are} silent: {names}; quorum {quorum}")
}

pub(super) fn silent_target(it: &Findings, silent: &[IpAddr]) -> Conclusion {
    let (local, first) = (it.inner.local(), silent.first().copied().unwrap_or(it.inner.far()));
    let (what, other) = match it.targets() {
        1 => (format!("its target {first} is silent"), "another target"),
        _ => (silent_targets(it, silent), "other targets, or a lower quorum"),
    };
    let remedy = [
        format!("at the far router: ping {first}: is it up, and does it answer requests?"),
        format!("at {first}: ip route get {local} must lead back to the far router"),
        format!("on this host: or write {other} under [tunnel.health_check]"),
    ];
    at_fault(Culprit::Target, End::Far, format!("{} carries packets, but {what}", it.name), remedy)
}

pub(super) fn return_path(it: &Findings) -> Conclusion {
    let (local, far) = (it.inner.local(), it.inner.far());
    let sentence = format!(
        "probes get through {} to the far router, whose bare answers arrive, but nothing comes back inside the tunnel",
        it.name
    );
    let remedy = [
        format!("at the far router: ip route replace {local} dev DEV (DEV is its tunnel device)"),
        format!("at the far router: ip addr show to {far}: is it an address of its own?"),
        format!("between it and this host: {} must pass this way, too", it.wrapped()),
    ];
    at_fault(Culprit::ReturnPath, End::Far, sentence, remedy)
}

pub(super) fn reverse_path(it: &Findings) -> Conclusion {
    let sentence = format!(
        "{} carries packets both ways, but probes from {} are dropped where they leave it: the far router has another \
         way to that source (reverse-path filter)",
        it.name,
        it.outer.local()
    );
    let remedy = [it.source_check(), "on this host: or write direction = \"bidirectional\"".to_owned()];
    at_fault(Culprit::ReversePath, End::Far, sentence, remedy)
}

pub(super) fn near_filter(it: &Findings) -> Conclusion {
    let sentence = format!(
        "bare answers from {} arrive only where a bare ping went before: a stateful firewall on this side drops the \
         others as invalid",
        it.outer.far()
    );
    let remedy = [
        format!(
            "on this host, before the rule that drops ct state invalid: nft insert rule inet filter input {} accept",
            it.echo_reply()
        ),
        "on this host: or write direction = \"bidirectional\"".to_owned(),
    ];
    at_fault(Culprit::NearFilter, End::Near, sentence, remedy)
}

pub(super) fn tunnel_key(it: &Findings, why: &str) -> Conclusion {
    let key = match (it.encapsulation.gre(), it.device.as_deref()) {
        (Some(options), _) => options.key.map_or_else(|| "no key".to_owned(), |key| format!("key {key}")),
        (None, device) => format!("the key of {} here", device.unwrap_or("the device")),
    };
    let (local, far) = (it.outer.local(), it.outer.far());
    let sentence =
        format!("the far router has no GRE tunnel from {far} to {local} with {key}: endpoints or key differ ({why})");
    let remedy = [
        format!("at the far router: ip -d link show type gre must have local {far} remote {local}, and {key}"),
        it.device.as_deref().map_or_else(
            || "on this host: or write the far router's number as key under [tunnel.gre]".to_owned(),
            |device| format!("on this host: ip -d link show {device}"),
        ),
    ];
    at_fault(Culprit::TunnelKey, End::Far, sentence, remedy)
}

pub(super) fn wrong_key_in(it: &Findings) -> Conclusion {
    let spi = it.spis.map(|[_, spi]| format!(" with SPI {spi:#x}")).unwrap_or_default();
    let sentence =
        format!("packets{spi} come from the far router, but this side's key does not open them: the keys differ");
    let remedy = [
        format!("at both ends: adit sa show {} here, ip xfrm state there: install one pair of keys at both", it.name),
        "at both ends: the algorithms, and the salt of a counter-mode key, must be the same as well".to_owned(),
    ];
    at_fault(Culprit::Association, End::Both, sentence, remedy)
}

pub(super) fn altered(it: &Findings) -> Conclusion {
    let sentence = format!(
        "answers of {} come back changed: addresses or payload are not those that were sent (NAT in the tunnel?)",
        it.name
    );
    let remedy = [format!("at the far router: nft list ruleset: no NAT for packets to {}", it.inner.local())];
    at_fault(Culprit::Altered, End::Far, sentence, remedy)
}

pub(super) fn encapsulation(it: &Findings, hint: &str) -> Conclusion {
    let (far, wrapped) = (it.outer.far(), it.wrapped());
    let knows = it.part(Part::Underlay).is_some();
    let alive = if knows { format!("{far} answers a bare ping, but ") } else { String::new() };
    let hinted = if hint.is_empty() { String::new() } else { format!("; {hint}") };
    let source_check = (it.style.direction == Direction::Unidirectional).then(|| it.source_check());
    if it.is_esp() && !it.was_answered {
        let [out, inward] = it.spis.unwrap_or_default();
        let sentence = format!(
            "{alive}nothing has ever come back in {wrapped} with this pair of keys: the far router has other keys or \
             SPIs, or ESP is dropped on the way{hinted}"
        );
        let remedy = [
            format!("at the far router: ip xfrm state must have SPI {out:#x} inbound and {inward:#x} outbound"),
            "at the far router: cat /proc/net/xfrm_stat: XfrmInNoStates counts a wrong SPI, XfrmInStateProtoError a \
             wrong key; if neither counts, nothing arrives"
                .to_owned(),
        ];
        return at_fault(Culprit::Association, End::Far, sentence, remedy.into_iter().chain(source_check));
    }
    let before = if it.was_answered { "any more" } else { "at all" };
    let lives = if it.is_esp() { " (an IKE daemon may go on calling it alive)" } else { "" };
    let sentence = format!("{alive}{wrapped} does not get through {before}{lives}{hinted}");
    let mut remedy = vec![format!("on the way, and in the far router's firewall: let {wrapped} through, both ways")];
    match it.encapsulation {
        Encapsulation::Gre(_) => {
            remedy.push(
                "at the far router: ip -d link show type gre: is the tunnel there, up, and with these ends?".to_owned(),
            );
        }
        Encapsulation::Esp(_) => {
            let [out, _] = it.spis.unwrap_or_default();
            remedy.push(format!("at the far router: ip xfrm state must still have SPI {out:#x}"));
            remedy.push(format!(
                "at the far router: ip xfrm policy must have dir in, fwd and out for {} and {}",
                it.inner.local(),
                it.inner.far()
            ));
        }
        Encapsulation::Device => {
            let device = it.device.as_deref().unwrap_or("DEV");
            remedy.push(format!("on this host: ip -s -d link show {device}: are its ends right, do its errors count?"));
            remedy.push(format!(
                "on this host: a rule of input that drops ct state invalid must spare {}",
                it.echo_reply()
            ));
        }
    }
    at_fault(Culprit::Encapsulation, End::Path, sentence, remedy.into_iter().chain(source_check))
}

pub(super) fn deaf(it: &Findings) -> Option<Conclusion> {
    it.is_deaf.then(|| {
        let sentence = "this host has lost packets meanwhile, so nothing is known: ask again".to_owned();
        let remedy = ["on this host: adit explain says what kept it from listening".to_owned()];
        at_fault(Culprit::Deaf, End::Near, sentence, remedy)
    })
}

pub(super) fn underlay(it: &Findings) -> Conclusion {
    let far = it.outer.far();
    let bare = it.part(Part::Underlay);
    let unsent = bare.and_then(|leg| leg.unsent.as_ref()).map(|why| format!(" (a bare ping does not leave: {why})"));
    let hint = bare.and_then(|leg| leg.hint.as_ref()).or(it.hint.as_ref()).map(|hint| format!("; {hint}"));
    let sentence = format!(
        "nothing comes back from {far}, neither bare nor through {}: the path is cut, or the far router is down{}{}",
        it.name,
        unsent.unwrap_or_default(),
        hint.unwrap_or_default()
    );
    let remedy = [
        format!("on this host: ip route get {far}; mtr {far} shows how far packets get"),
        format!("at the far router: is {far} up there, with a way back to {}?", it.outer.local()),
    ];
    at_fault(Culprit::Underlay, End::Path, sentence, remedy)
}
