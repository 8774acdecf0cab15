//! From what was found to one sentence: which leg fails, at which end, and what to change there.

use std::net::IpAddr;

use serde::Serialize;

use super::findings::{Findings, LegView, Longer, Part, Stray};
use super::words::{
    altered, at_fault, deaf, echo_filter, encapsulation, leak, near_filter, reply, return_path, reverse_path,
    silent_target, silent_targets, tunnel_key, underlay, well, wrong_key_in,
};
use crate::wire::{Direction, Encapsulation, Kind, Reject, Style};

/// What is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Culprit {
    /// Nothing.
    None,
    /// This host does not send.
    Local,
    /// This host has lost packets: nothing is known.
    Deaf,
    /// The path to the far endpoint, or the far router itself.
    Underlay,
    /// What is wrapped does not get through, though what is bare does.
    Encapsulation,
    /// The far router has no GRE tunnel with these endpoints and this key.
    TunnelKey,
    /// Keys or SPIs of ESP.
    Association,
    /// The tunnel carries packets, but too few of its targets answer.
    Target,
    /// The far router takes what leads out of the tunnel, and does not put answers into it.
    ReturnPath,
    /// Answers come another way than they must.
    Leak,
    /// The far router's connection tracking takes a reply-style probe for invalid.
    ReplyFilter,
    /// The far router refuses packets from an address of its own.
    AcceptLocal,
    /// The far router does not forward.
    Forwarding,
    /// The far router answers no requests.
    EchoFilter,
    /// The far router refuses a source that it has a better way to.
    ReversePath,
    /// A stateful firewall of this host takes answers for invalid.
    NearFilter,
    /// A stateful device has pinned the identifier of regular probes.
    Identifier,
    /// The reflector's mark is missing or wrong.
    Mark,
    /// Answers have been changed on the way.
    Altered,
    /// Long packets vanish, and nobody says so.
    Mtu,
    /// Some probes are lost.
    Loss,
}

impl Culprit {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::None,
        Self::Local,
        Self::Deaf,
        Self::Underlay,
        Self::Encapsulation,
        Self::TunnelKey,
        Self::Association,
        Self::Target,
        Self::ReturnPath,
        Self::Leak,
        Self::ReplyFilter,
        Self::AcceptLocal,
        Self::Forwarding,
        Self::EchoFilter,
        Self::ReversePath,
        Self::NearFilter,
        Self::Identifier,
        Self::Mark,
        Self::Altered,
        Self::Mtu,
        Self::Loss,
    ];
}

/// Where something is to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Nowhere.
    None,
    /// On this host.
    Near,
    /// On the way.
    Path,
    /// At the far router.
    Far,
    /// At both ends.
    Both,
}

/// What it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conclusion {
    /// No leg fails that matters.
    pub ok: bool,
    /// What is at fault.
    pub culprit: Culprit,
    /// Where something is to be changed.
    pub end: End,
    /// In one sentence.
    pub sentence: String,
    /// What to change, or where to look, the likeliest first.
    pub remedy: Vec<String>,
}

/// What was found means this.
#[must_use]
pub fn conclude(it: &Findings) -> Conclusion {
    // What a full queue has lost may have been the answers, and what filled it is no evidence.
    let steps = [not_sent, by_target, answered, astray, deaf, refused, by_style, no_answer_inside];
    steps.into_iter().find_map(|step| step(it)).unwrap_or_else(|| underlay(it))
}

impl Findings {
    fn legs_of(&self, parts: &[Part], kind: Kind, direction: Direction) -> impl Iterator<Item = &LegView> {
        let style = Style { kind, direction };
        self.legs.iter().filter(move |leg| parts.contains(&leg.leg) && leg.style == style)
    }

    /// Whether a style is answered.
    fn is_answered(&self, kind: Kind, direction: Direction) -> bool {
        self.legs_of(&[Part::Regular, Part::Fresh], kind, direction).any(|leg| leg.answered > 0)
    }

    /// Whether a style was sent and not answered.
    fn is_silent(&self, kind: Kind, direction: Direction) -> bool {
        let mut sent = self.legs_of(&[Part::Regular, Part::Fresh], kind, direction).filter(|leg| leg.sent > 0);
        sent.next().is_some() && !self.is_answered(kind, direction)
    }

    pub(super) fn own(&self) -> impl Iterator<Item = &LegView> {
        self.legs_of(&[Part::Regular, Part::Fresh], self.style.kind, self.style.direction)
    }

    /// The probes of regular ones' style to the other targets.
    fn others(&self) -> impl Iterator<Item = &LegView> {
        self.legs_of(&[Part::Target], self.style.kind, self.style.direction)
    }

    fn is_own_answered(&self) -> bool {
        self.own().any(|leg| leg.answered > 0)
    }

    /// Where the first target is not answered, those that are; else the first.
    pub(super) fn answering(&self) -> impl Iterator<Item = &LegView> {
        let is_first = self.is_own_answered();
        let first = self.own().filter(move |_| is_first);
        first.chain(self.others().filter(move |leg| !is_first && leg.answered > 0))
    }

    /// How many targets there are.
    pub(super) fn targets(&self) -> usize {
        1 + self.others().count()
    }

    /// Those that say nothing.
    pub(super) fn silent_targets(&self) -> Vec<IpAddr> {
        let first = Some(self.inner.far()).filter(|_| !self.is_own_answered());
        let others = self.others().filter(|leg| leg.answered == 0).map(|leg| leg.target);
        first.into_iter().chain(others).collect()
    }

    /// Whether as many targets answer as must.
    pub(super) fn is_met(&self) -> bool {
        self.targets() - self.silent_targets().len() >= self.quorum
    }

    pub(super) fn part(&self, part: Part) -> Option<&LegView> {
        self.legs.iter().find(|leg| leg.leg == part)
    }

    pub(super) fn answers(&self, part: Part) -> bool {
        self.part(part).is_some_and(|leg| leg.answered > 0)
    }

    pub(super) fn is_esp(&self) -> bool {
        matches!(self.encapsulation, Encapsulation::Esp(_))
    }
}

fn not_sent(it: &Findings) -> Option<Conclusion> {
    let own = it.part(Part::Regular)?;
    let why = own.unsent.as_ref().filter(|_| own.sent == 0)?;
    if let Some(obstacle) = &it.obstacle {
        let sentence = format!("{} cannot be probed: this host sends nothing through it", it.name);
        return Some(at_fault(Culprit::Local, End::Near, sentence, [format!("on this host: {obstacle}")]));
    }
    let sentence = format!("probes of {} do not leave this host: {why}", it.name);
    let hint = if why.contains("not permitted") {
        format!("let {} out of this host's own firewall: nft list ruleset", it.wrapped())
    } else if why.contains("unreachable") {
        format!("give this host a route to the far endpoint: ip route get {}", it.outer.far())
    } else if why.contains("missing") {
        "make it, or name another one in the configuration: ip link show; ip netns list".to_owned()
    } else {
        "ip link show, ip route show: the kernel's words say what it lacks".to_owned()
    };
    Some(at_fault(Culprit::Local, End::Near, sentence, [format!("on this host: {hint}")]))
}

/// The tunnel carries packets to somebody, and too few targets answer.
fn by_target(it: &Findings) -> Option<Conclusion> {
    let silent = it.silent_targets();
    let carries = silent.len() < it.targets() || it.answers(Part::Router);
    // That is more than silence: it says what is wrong with its answers, or with a style.
    let is_known = !it.is_own_answered()
        && (it.own().any(|leg| leg.astray.is_some())
            || it.style.kind == Kind::Reply && it.is_answered(Kind::Request, it.style.direction));
    if it.is_met() || !carries || is_known {
        return None;
    }
    deaf(it).or_else(|| Some(silent_target(it, &silent)))
}

/// The tunnel's own style is answered: what may be wrong all the same.
fn answered(it: &Findings) -> Option<Conclusion> {
    if !it.is_own_answered() && !it.is_met() {
        return None;
    }
    let found = [pinned, lossy, black_hole].into_iter().find_map(|step| step(it));
    Some(found.unwrap_or_else(|| well(it)))
}

fn pinned(it: &Findings) -> Option<Conclusion> {
    let regular = it.part(Part::Regular)?;
    if it.is_own_answered() && regular.sent > 0 && regular.answered == 0 {
        let sentence = "probes with a fresh identifier are answered and those with the regular one are not: a \
                        stateful device on the way has pinned it to a flow that leads nowhere"
            .to_owned();
        let remedy = [
            format!(
                "at the far router, or the firewall before it: conntrack -D {}",
                it.by_family("-p icmp", "-f ipv6 -p icmpv6")
            ),
            "or wait: after 10 failures in a row regular probes take another identifier".to_owned(),
        ];
        return Some(at_fault(Culprit::Identifier, End::Path, sentence, remedy));
    }
    None
}

fn lossy(it: &Findings) -> Option<Conclusion> {
    let (sent, answered) =
        it.answering().fold((0, 0), |(sent, answered), leg| (sent + leg.sent, answered + leg.answered));
    // A third, and not only one. Long packets are lost as well then, whatever the MTU.
    if sent - answered >= (sent / 3).max(2) {
        let sentence = format!("{} answers, but loses probes: {answered} of {sent} were answered", it.name);
        let remedy = [
            format!("on the way: mtr {} shows where packets are lost", it.outer.far()),
            "at the far router: is ICMP policed there, or is a link full?".to_owned(),
        ];
        return Some(at_fault(Culprit::Loss, End::Path, sentence, remedy));
    }
    None
}

fn black_hole(it: &Findings) -> Option<Conclusion> {
    if let Some(mtu) = it.mtu.filter(|mtu| mtu.longer == Longer::Lost) {
        let sentence = format!(
            "packets of up to {} bytes pass through {}{}, longer ones vanish on the way and nobody says so: an MTU \
             black hole",
            mtu.inner,
            it.name,
            mtu.between()
        );
        let device = it.device.as_deref().unwrap_or("DEV");
        let remedy = [
            format!("at both ends: ip link set dev {device} mtu {} (DEV is the tunnel device there)", mtu.inner),
            "on the way: let ICMP \"fragmentation needed\" and \"packet too big\" through".to_owned(),
        ];
        return Some(at_fault(Culprit::Mtu, End::Both, sentence, remedy));
    }
    None
}

/// Answers come, but not as they must.
fn astray(it: &Findings) -> Option<Conclusion> {
    let Stray { reason, came } = it.own().find_map(|leg| leg.astray.as_ref())?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is left is about the way")]
    Some(match reason {
        Reject::WrongKey => tunnel_key(it, &format!("its answers come {came}")),
        Reject::Mark => {
            let sentence =
                "answers come through the tunnel, but without the mark that mark_key_file asks for".to_owned();
            let remedy = [
                "at the far end: run adit reflect with the same mark_key_file".to_owned(),
                "on this host: remove mark_key_file, if nobody marks there".to_owned(),
            ];
            at_fault(Culprit::Mark, End::Far, sentence, remedy)
        }
        _ => leak(it, came),
    })
}

/// Something came that may have been an answer, but for what it was refused for.
fn refused(it: &Findings) -> Option<Conclusion> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is left says nothing about this tunnel")]
    match it.reject? {
        Reject::EspIcv => Some(wrong_key_in(it)),
        Reject::WrongKey if !it.is_esp() => Some(tunnel_key(it, "its answers come with another key")),
        Reject::Tag => Some(altered(it)),
        _ => None,
    }
}

/// The tunnel's own style is not answered, another one is.
fn by_style(it: &Findings) -> Option<Conclusion> {
    use Direction::{Bidirectional, Unidirectional};
    use Kind::{Reply, Request};
    let Style { kind, direction } = it.style;
    let is_inside_only = it.is_answered(Request, Unidirectional) || it.is_answered(Reply, Unidirectional);
    let is_both_ways = it.is_answered(Request, Bidirectional) || it.is_answered(Reply, Bidirectional);
    Some(match (kind, direction) {
        (Reply, _) if it.is_answered(Request, direction) => reply(it),
        (Reply, Unidirectional) if it.answers(Part::Tracked) => near_filter(it),
        (Request, Unidirectional) if it.answers(Part::Tracked) => near_filter(it),
        (Request, _) if it.is_answered(Reply, direction) => echo_filter(it),
        (Request | Reply, Bidirectional) if is_inside_only => return_path(it),
        (Request | Reply, Unidirectional) if is_both_ways => reverse_path(it),
        (Request | Reply, Bidirectional | Unidirectional) => return None,
    })
}

/// No style is answered through the tunnel; why that may be although the far endpoint is there.
fn no_answer_inside(it: &Findings) -> Option<Conclusion> {
    let hint = it.hint.as_deref().unwrap_or_default();
    if hint.contains("no such tunnel") {
        return Some(tunnel_key(it, hint));
    }
    if !it.answers(Part::Underlay) && it.part(Part::Underlay).is_some() {
        return None;
    }
    Some(encapsulation(it, hint))
}

/// What is worth knowing beside the conclusion.
#[must_use]
pub fn notes(it: &Findings) -> Vec<String> {
    use Direction::Bidirectional;
    let mut notes = Vec::new();
    let is_well = it.is_own_answered() || it.is_met();
    if !it.is_checked {
        notes.push("it is not checked (enabled = false), so it is unknown and carries no penalty".to_owned());
    }
    if is_well && it.part(Part::Underlay).is_some_and(|leg| leg.sent > 0 && leg.answered == 0) {
        notes.push(format!("{} answers no bare pings, which does no harm", it.outer.far()));
    }
    if is_well && it.style.kind == Kind::Request && it.is_silent(Kind::Reply, Bidirectional) {
        notes.push("type = \"reply\" would fail here: the far router does not route echo replies back".to_owned());
    }
    let silent = it.silent_targets();
    if it.is_met() && !silent.is_empty() {
        notes.push(format!("{}, which is no failure", silent_targets(it, &silent)));
    }
    match it.mtu {
        Some(mtu) if mtu.longer == Longer::Told => {
            let about = mtu.between();
            notes.push(format!(
                "the path says itself that {} bytes are its MTU, {} inside{about}",
                mtu.outer, mtu.inner
            ));
        }
        _ => {}
    }
    notes
}
