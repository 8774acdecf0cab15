//! A configuration written out again, with everything that it did not say filled in.

use super::check::Cadence;
use super::endpoint::Endpoint;
use super::kernel::{Kernel, NotifyRoutes, OnExit};
use super::lines::Lines;
use super::names::Netns;
use super::notation::{dscp_written, fwmark_written, percent, ports_written, written};
use super::policy::{self, protocol_written};
use super::tunnel::{Esp, Tunnel};
use super::{Config, Daemon};
use crate::engine::health::Rules;
use crate::engine::settings::{ReturnPath, Source, Timeout};
use crate::engine::{FailStatic, Route};
use crate::steer::{Mode, Rule};
use crate::wire::esp::Shape;
use crate::wire::{Encapsulation, Family, Kind, gre};

/// The whole text. No key is in it: only the paths of key files.
pub(super) fn text(config: &Config) -> String {
    let mut lines = Lines::default();
    daemon(&config.daemon, &mut lines);
    rules("[defaults.health_check.rules]", &config.rules, &mut lines);
    config.tunnels.iter().for_each(|tunnel| self::tunnel(tunnel, &mut lines));
    config.routes.iter().for_each(|route| self::route(route, config, &mut lines));
    config.policy.iter().for_each(|(netns, rule)| self::rule(netns.as_ref(), rule, &mut lines));
    config.endpoints.iter().for_each(|endpoint| self::endpoint(endpoint, &mut lines));
    kernel(&config.kernel, &mut lines);
    fail_static(config.fail_static, &mut lines);
    config.notify.iter().for_each(|notify| super::notify::write(notify, &mut lines));
    lines.into_text()
}

fn daemon(daemon: &Daemon, lines: &mut Lines) {
    lines.header("[daemon]");
    lines.path("socket", &daemon.socket);
    for (key, group) in [("socket_group", &daemon.socket_group), ("admin_group", &daemon.admin_group)] {
        group.iter().for_each(|group| lines.text(key, group));
    }
    lines.path("state_dir", &daemon.state_dir);
    daemon.record.iter().for_each(|record| lines.path("record", record));
    if let Some(address) = daemon.metrics {
        lines.text("metrics", address.to_string());
        lines.line("status_page", daemon.status_page);
    }
}

fn tunnel(tunnel: &Tunnel, lines: &mut Lines) {
    let onion = &tunnel.onion;
    lines.header("[[tunnel]]");
    lines.text("name", &tunnel.name);
    lines.text("encapsulation", onion.encapsulation.name());
    if tunnel.written.endpoints {
        lines.text("local_endpoint", onion.outer.local().to_string());
        lines.text("remote_endpoint", onion.outer.far().to_string());
    }
    tunnel.written.interface_address.iter().for_each(|address| lines.text("interface_address", address.to_string()));
    tunnel.netns.iter().for_each(|netns| lines.text("netns", netns.to_string()));
    tunnel.underlay_device.iter().for_each(|device| lines.text("underlay_device", device));
    tunnel.device.iter().for_each(|device| lines.text("device", device));
    // What a tunnel that the kernel wraps cannot have, it cannot read either.
    if tunnel.device.is_none() {
        lines.line("mark", tunnel.mark);
    }
    if onion.encapsulation != Encapsulation::Device {
        lines.line("ttl", onion.ttl);
    }
    lines.line("dscp", dscp_written(onion.dscp));
    lines.line("servers", tunnel.written.servers);
    health_check(tunnel, lines);
    match onion.encapsulation {
        Encapsulation::Gre(options) => gre(options, lines),
        Encapsulation::Esp(shape) => tunnel.esp.iter().for_each(|esp| self::esp(esp, shape, tunnel, lines)),
        Encapsulation::Device => {}
    }
}

fn health_check(tunnel: &Tunnel, lines: &mut Lines) {
    let check = &tunnel.check;
    lines.header("[tunnel.health_check]");
    lines.line("enabled", check.enabled);
    lines.text(
        "type",
        match tunnel.onion.style.kind {
            Kind::Request => "request",
            Kind::Reply => "reply",
        },
    );
    lines.text("direction", if tunnel.is_bidirectional() { "bidirectional" } else { "unidirectional" });
    match tunnel.written.cadence {
        Cadence::Rate(rate) => lines.text("rate", rate.name()),
        Cadence::Interval(interval) => lines.text("interval", written(interval)),
    }
    match check.timeout {
        Timeout::Fixed(timeout) => lines.text("timeout", written(timeout)),
        Timeout::Auto => lines.text("timeout", "auto"),
    }
    lines.line("early_retry", check.early_retry);
    tunnel.written.target.iter().for_each(|target| lines.text("target", target.to_string()));
    if let Some(targets) = &tunnel.targets {
        let all = std::iter::once(tunnel.onion.inner.far()).chain(targets.further.iter().copied());
        let all: Vec<String> = all.map(|target| format!("\"{target}\"")).collect();
        lines.line("targets", format_args!("[{}]", all.join(", ")));
        lines.line("quorum", targets.quorum);
    }
    lines.text(
        "return_path",
        match check.return_path {
            ReturnPath::Strict => "strict",
            ReturnPath::Any => "any",
        },
    );
    lines.line("size", tunnel.onion.size);
    tunnel.written.mark_key_file.iter().for_each(|file| lines.path("mark_key_file", file));
    rules("[tunnel.health_check.rules]", &check.rules, lines);
}

fn rules(header: &str, rules: &Rules, lines: &mut Lines) {
    lines.header(header);
    lines.text("degraded_ratio", percent(rules.degraded_ratio));
    lines.line("degraded_min_failures", rules.degraded_min_failures);
    lines.text("degraded_window", written(rules.degraded_window));
    lines.line("down_min_samples", rules.down_min_samples);
    lines.text("down_window", written(rules.down_window));
    lines.line("up_samples", rules.up_samples);
    lines.line("recovery_samples", rules.recovery_samples);
}

fn gre(options: gre::Options, lines: &mut Lines) {
    lines.header("[tunnel.gre]");
    options.key.iter().for_each(|key| lines.line("key", key));
    lines.line("sequence", options.sequence);
    lines.line("checksum", options.checksum);
}

fn esp(esp: &Esp, shape: Shape, tunnel: &Tunnel, lines: &mut Lines) {
    lines.header("[tunnel.esp]");
    lines.text(
        "keys",
        match esp.terms.source {
            Source::Static => "static",
            Source::Installed => "installed",
        },
    );
    if let Some(material) = &esp.material {
        lines.line("spi_out", format_args!("{:#x}", material.spi_out));
        lines.line("spi_in", format_args!("{:#x}", material.spi_in));
    }
    lines.text("algorithm", shape.algorithm().name());
    if let Some([key_out, key_in]) = &tunnel.written.esp_key_files {
        lines.path("key_out_file", key_out);
        lines.path("key_in_file", key_in);
    }
    lines.line("esn", esp.terms.esn);
    lines.line("replay_window", esp.terms.replay_window);
    lines.line("udp_encapsulation", shape.udp());
}

fn route(route: &Route, config: &Config, lines: &mut Lines) {
    lines.header("[[route]]");
    lines.text("prefix", route.prefix.to_string());
    let tunnel = config.tunnels.get(route.tunnel as usize);
    tunnel.iter().for_each(|tunnel| lines.text("tunnel", &tunnel.name));
    lines.line("priority", route.priority);
    lines.line("weight", route.weight);
    if let Some(place) = config.places.get(route.place as usize) {
        lines.line("table", place.table);
        place.netns.iter().for_each(|netns| lines.text("netns", netns.to_string()));
    }
    route.device.iter().for_each(|device| lines.text("device", device));
    route.via.iter().for_each(|via| lines.text("via", via.to_string()));
    if route.onlink {
        lines.line("onlink", true);
    }
}

fn rule(netns: Option<&Netns>, rule: &Rule, lines: &mut Lines) {
    lines.header("[[rule]]");
    rule.source.iter().for_each(|source| lines.text("source", source.to_string()));
    rule.destination.iter().for_each(|destination| lines.text("destination", destination.to_string()));
    rule.fwmark.iter().for_each(|mark| lines.line("fwmark", fwmark_written(*mark)));
    rule.protocol.iter().for_each(|protocol| lines.line("protocol", protocol_written(*protocol)));
    rule.ports.iter().for_each(|ports| lines.line("destination_port", ports_written(*ports)));
    lines.line("table", rule.table);
    lines.line("priority", rule.priority);
    if !policy::tells_family(rule) {
        lines.text(
            "family",
            match rule.family {
                Family::V4 => "ipv4",
                Family::V6 => "ipv6",
            },
        );
    }
    netns.iter().for_each(|netns| lines.text("netns", netns.to_string()));
}

fn endpoint(endpoint: &Endpoint, lines: &mut Lines) {
    lines.header("[[endpoint]]");
    lines.text("name", &endpoint.name);
    lines.text("address", endpoint.address.to_string());
    endpoint.source.iter().for_each(|source| lines.text("source", source.to_string()));
    endpoint.netns.iter().for_each(|netns| lines.text("netns", netns.to_string()));
    lines.line("mark", endpoint.mark);
    lines.text("interval", written(endpoint.interval));
    lines.text("retry_interval", written(endpoint.retry_interval));
    lines.text("timeout", written(endpoint.timeout));
    lines.line("count", endpoint.count);
}

fn fail_static(fail_static: Option<FailStatic>, lines: &mut Lines) {
    lines.header("[fail_static]");
    lines.line("enabled", fail_static.is_some());
    if let Some(FailStatic { share, while_clean }) = fail_static {
        lines.text("share", percent(share));
        lines.line("while_clean", while_clean);
    }
}

fn kernel(kernel: &Kernel, lines: &mut Lines) {
    lines.header("[kernel]");
    lines.line("apply", kernel.apply);
    lines.line("table", kernel.table);
    lines.text(
        "mode",
        match kernel.mode {
            Mode::Metric => "metric",
            Mode::Nexthop => "nexthop",
        },
    );
    lines.text(
        "nexthop_notify_routes",
        match kernel.notify_routes {
            NotifyRoutes::Keep => "keep",
            NotifyRoutes::Off => "off",
        },
    );
    lines.line("protocol", kernel.protocol);
    lines.line("backstop", kernel.backstop);
    lines.text(
        "on_exit",
        match kernel.on_exit {
            OnExit::Keep => "keep",
            OnExit::Remove => "remove",
        },
    );
    lines.text("reconcile_interval", written(kernel.reconcile_interval));
    lines.line("receive_buffer", kernel.receive_buffer);
}
