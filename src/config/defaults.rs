//! What holds where a configuration says nothing, and the limits of what it may say.
//!
//! The numbers of the health rules are [`crate::engine::health::Rules::default`].

use std::ops::RangeInclusive;
use std::time::Duration;

use super::check::Rate;
use crate::engine::MAIN;
use crate::engine::penalty::BASE_MAX;
use crate::engine::window::RECENT_MAX;
use crate::wire::esp::Algorithm;
use crate::wire::payload;

/// `daemon.socket`.
pub const SOCKET: &str = "/run/adit/adit.sock";
/// `daemon.socket_group`, where this machine has such a group; where it has none, nobody but root and
/// the daemon's own user may use the socket.
pub const SOCKET_GROUP: &str = "adit";
/// Bytes in a Unix socket's path, its closing zero aside: `sun_path` has 108 (unix(7)).
pub const SOCKET_PATH_MAX: usize = 107;
/// `daemon.state_dir`.
pub const STATE_DIR: &str = "/var/lib/adit";

/// What `daemon.metrics` is in examples; nothing is served over TCP unless it is written.
pub const METRICS: &str = "127.0.0.1:9911";
/// Its port.
pub const METRICS_PORT: u16 = 9911;

/// `tunnel.ttl`: hops; what hosts use for their own packets (RFC 1700's recommendation).
pub const TTL: u8 = 64;
/// `tunnel.dscp`: CS6, network control (RFC 4594 section 3.1): a probe must not be dropped because
/// the users' own traffic is heavy.
pub const DSCP: u8 = 48;
/// `tunnel.mark`: the firewall mark of the outer packets; 0 is none.
pub const MARK: u32 = 0;
/// `tunnel.servers`: how many probers of a site share the tunnel.
pub const SERVERS: u32 = 1;
/// More than this many are a slip of the finger: at 60 s for each nothing is stretched any more.
pub const SERVERS_MAX: u32 = 1_024;
/// `esp.algorithm` where keys are installed, and those of a pair do not say: what key exchanges agree
/// on (RFC 8221 section 5 has it among what everybody must have).
pub const ALGORITHM: Algorithm = Algorithm::Aes256Gcm;
/// `esp.esn`: extended sequence numbers, as between routers that have not agreed on anything else (RFC
/// 4303 section 2.2.1). Without them the numbers of a static pair can run out. The far router must have
/// the same; for `ip xfrm` that is `flag esn`.
pub const ESN: bool = true;
/// `esp.replay_window`, in sequence numbers (64 is what RFC 4303 section 3.4.3 prefers).
///
/// 0 is none. RFC 4303 section 5 advises that for static keys: a sender that does not keep count for
/// ever begins at 1 when it starts again, and a window refuses it until it has come past where it was.
/// adit keeps count; a far router that does not, as a Linux kernel with `ip xfrm`, needs 0 here. No
/// probe is answered twice all the same.
pub const REPLAY_WINDOW: u32 = 64;
/// Letters of a name: it has to fit a table's column and a metric's label.
pub const NAME_MAX: usize = 64;

/// `health_check.rate`.
pub const RATE: Rate = Rate::Mid;
/// What several servers together stretch an interval to, at most: 30 probes take 30 minutes then,
/// the longest way back to healthy that the rules mean.
pub const STRETCH_MAX: Duration = Duration::from_secs(60);
/// `health_check.interval`: below 10 ms a probe is load rather than a question; above an hour
/// nobody would call it a check.
pub const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3_600);
/// `health_check.timeout`: longer than nearly every path takes, and half of `down_window`.
pub const TIMEOUT: Duration = Duration::from_millis(500);
/// From the fastest link to a path over two satellites and a queue.
pub const TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
/// `health_check.early_retry`.
pub const EARLY_RETRY: bool = true;
/// `health_check.size`: bytes after the ICMP header. The outer packet stays far below 1280 bytes,
/// the least that every IPv6 link carries (RFC 8200 section 5).
#[expect(clippy::cast_possible_truncation, reason = "72 bytes")]
pub const SIZE: u16 = payload::LEN as u16;
/// The longest outer packet in bytes: jumbo frames carry as much, and few things more.
pub const PACKET_MAX: usize = 9_000;

/// `rules.degraded_window` and `down_window`; beyond a day nobody remembers the first failure.
pub const WINDOW: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(86_400);
/// `rules.down_min_samples`, `up_samples`, `recovery_samples`: what the window keeps one by one.
pub const SAMPLES: RangeInclusive<u32> = 1..=RECENT_MAX;
/// `rules.degraded_min_failures`.
pub const FAILURES: RangeInclusive<u32> = 1..=100_000;

/// `route.priority`: 0 is left out because IPv6 turns metric 0 into 1024.
pub const PRIORITY: RangeInclusive<u32> = 1..=BASE_MAX;
/// `route.weight`.
pub const WEIGHT: u32 = 1;
/// What a next hop's weight can be in the kernel (`rtnh_hops` holds it less one, in 8 bits).
pub const WEIGHT_RANGE: RangeInclusive<u32> = 1..=256;

/// `kernel.table`, and with it `route.table`: the main one.
pub const TABLE: u32 = MAIN;
/// `kernel.protocol`, the tag: no known program's (`rtm_protocol` in linux/rtnetlink.h; FRR has 186 to
/// 198). `packaging/iproute2/rt_protos.d` gives it a name.
pub const PROTOCOL: u8 = 212;
/// `kernel.reconcile_interval`: the kernel tells of its changes, but for IPv4 routes that go with their
/// link; for what slips through nobody should wait longer than a person would.
pub const RECONCILE: Duration = Duration::from_secs(30);
/// From what a large table can bear to what is hardly worth its name.
pub const RECONCILE_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);
/// `kernel.receive_buffer`, in bytes.
pub const RECEIVE_BUFFER: u32 = 4 << 20;
/// From one page to what nobody would give away.
pub const RECEIVE_BUFFER_RANGE: RangeInclusive<u32> = 4_096..=1 << 28;

/// `rule.priority`: after the kernel's own rule for its addresses (0), before that for the main table
/// (32766; ip-rule(8)).
pub const RULE_PRIORITY: RangeInclusive<u32> = 1..=32_765;
/// `rule.destination_port`; the kernel takes no rule about port 65535 (`fib_rule_port_range_valid`).
pub const PORT: RangeInclusive<u16> = 1..=65_534;

/// So many endpoints at most: each is a few lines of the metrics.
pub const ENDPOINTS_MAX: usize = 4_096;
/// `endpoint.interval`: what Cloudflare's endpoint checks take.
pub const ENDPOINT_INTERVAL: Duration = Duration::from_secs(600);
/// From what a host that is nobody's router should be asked to what is hardly a check any more.
pub const ENDPOINT_INTERVAL_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
/// `endpoint.retry_interval`: a route has moved by then, and nobody wants to wait for ten minutes to see it.
pub const ENDPOINT_RETRY: Duration = Duration::from_secs(30);
/// `endpoint.timeout`: the path beyond the far router adds to that through the tunnel.
pub const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(1);
/// `endpoint.count`: one that is lost is loss, and not the end of a path.
pub const ENDPOINT_COUNT: u32 = 3;
/// More in a round would be load rather than a question.
pub const ENDPOINT_COUNT_RANGE: RangeInclusive<u32> = 1..=20;

/// `reflect.state_dir`.
pub const REFLECT_STATE_DIR: &str = "/var/lib/adit-reflect";
/// `fault.after` and `fault.for`: longer than any test.
pub const FAULT_TIME: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 86_400);
/// `fault.delay` and `fault.jitter`.
pub const FAULT_DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

/// `notify.timeout`: longer than a mail server takes on a bad day.
pub const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// From what a local program needs to what nobody would wait for.
pub const NOTIFY_TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);
/// `notify.batch`: tunnels that share a path go down within a second of each other.
pub const NOTIFY_BATCH: Duration = Duration::from_secs(1);
/// Longer than a minute is no news any more.
pub const NOTIFY_BATCH_RANGE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
/// `notify.repeat` for states: as long as the rules' own memory of a failure.
pub const NOTIFY_REPEAT: Duration = Duration::from_secs(300);
/// `notify.repeat` for an objective.
pub const NOTIFY_SLO_REPEAT: Duration = Duration::from_secs(3_600);
/// Zero is never held back; a week is what Cloudflare's alerts have at most.
pub const NOTIFY_REPEAT_RANGE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(7 * 86_400);
/// `notify.slo_window`, which Cloudflare's alerts have, too.
pub const SLO_WINDOW: Duration = Duration::from_secs(300);
/// From a few probes at the highest rate to two days for twelve times as long.
pub const SLO_WINDOW_RANGE: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(4 * 3_600);
