//! adit: packet-level tunnel health checks, and steering away from the sick ones.
//!
//! # The words
//!
//! A **tunnel** joins this host to a far router, by GRE, by ESP, or by a device of the kernel's. A
//! **probe** is one ICMP echo message sent through one tunnel. Its outcome is a **sample**: a *success*
//! if a valid answer arrived by the deadline, a *failure* if none did. Samples decide a tunnel's
//! **state**: unknown, healthy, degraded or down. A change of state is a **transition**. A state has a
//! **penalty**: what every **route** over the tunnel costs more. The route with the lowest *effective
//! priority* (base and penalty together) carries the traffic. What is told to people is an **event**.
//! The same words are used in code, configuration, logs and documents; there are no others for these
//! things.
//!
//! A tunnel may have several **targets** behind it. Then a **round** of probes, one to each at the same time, is one sample: a
//! success if a **quorum** of them have answered.
//!
//! What probes **need** is a network namespace, or a device. It may be missing: then traffic could not leave
//! either, so a probe is a failure at once, and says why.
//!
//! An **endpoint** is an address beyond the far routers, probed in no tunnel and over whatever route it takes, a few probes a
//! **round**. It is reachable, unreachable or unknown, and that is told; it judges no tunnel and moves no route.
//!
//! Of ESP: a **security association** is one direction's SPI, algorithm and keys. It *seals* probes or
//! *opens* answers, and an ESP tunnel has a **pair** of them. Every sealed packet has a **sequence
//! number**, and the **record** on the disk says below which **mark** numbers may have been used.
//!
//! Of the kernel's routes: what is ours bears a **tag**, the protocol number of routes. A **picture** is all
//! that matters of one namespace at one moment; what is not in it as we left it is **drift**; a route's
//! **standing** is what the kernel makes of it.
//!
//! Of telling people: a **sink** is a program or a webhook that is told, a **message** what it is told at once. Whoever
//! carries messages is the **messenger**.
//!
//! Of a tunnel that is sick: a **diagnosis** sends more than the regular probes, a few to each **leg**, and concludes
//! which leg fails.
//!
//! Of what an earlier run knew: a state that is remembered from long ago is **stale** until samples confirm it.
//!
//! # The laws
//!
//! 1. A probe settles once. What comes late, twice or forged only counts.
//! 2. Health changes only by samples, through one function ([`engine::health::Health::judge`]),
//!    whose match has no catch-all arm. (A tunnel that cannot be probed any more is as if it were new.)
//! 3. A penalty is base + f(state), computed anew, never accumulated. It reorders; it never takes
//!    the last route away.
//! 4. The prober's own trouble is no verdict about a tunnel. (One that cannot be probed any more is
//!    unknown; what the last verdict costs it stays.)
//! 5. Disabled is not down; drained is not down; unknown is not healthy.
//! 6. We touch only routes that bear our tag; new before old, so no prefix is without a route for a
//!    moment because of us.
//! 7. What is worth keeping survives a kill -9 and a power cut: every ESP sequence number that may have been
//!    used; each tunnel's state, its reason and an operator's drain; the samples that it rests on, if they are no
//!    older than [`engine::memory::FRESH`]. That is what the disk has taken, which a drain waits for and a verdict
//!    is a moment ahead of. To take it up is no transition and moves no route, and no number of an event is told
//!    twice, unless the disk refused every write.
//!
//! Each law has tests that bear its number in their name, in `tests/laws.rs`; the sixth also in `tests/steer`, under a
//! model of Linux's routes, the seventh in `tests/memory.rs` and `tests/ledger`.
//!
//! # The rooms
//!
//! | room | is | may use |
//! | --- | --- | --- |
//! | [`wire`] | PURE: bytes. GRE, ESP, IP, ICMP, the payload that proves itself; one reason for each way to be wrong | nothing of ours |
//! | [`engine`] | PURE: decisions. Schedule, in-flight, health, penalty, routes, drains, endpoints, diagnoses, rates, associations and their numbers, snapshot, explain | `wire` |
//! | [`steer`] | PURE: what the kernel's routes should be, against what they are; the changes between | `wire`, values of `engine` |
//! | [`notice`] | PURE: what people are told: which events, together with which others, once | values of `engine` |
//! | [`config`] | text in, a `Config` that cannot be wrong out; and what the kernel or Cloudflare has in, such a text out | values of `engine`, `notice`, `steer`, `wire`, `reflect::plan` |
//! | [`reflect`] | a far end in user space: PURE but for [`reflect::run`], its shell | `wire`, `io`, values of `engine` |
//! | [`io`] | THIN: raw sockets, devices, namespaces, clocks, the kernel's associations, the record of sequence numbers, the kernel's routes, the local socket, the log, the walls around the prober, the way to sinks | values of `engine`, `notice`, `steer`, `wire`; `config::nearest`, `config::key_text`, `config::defaults`, values of `config::propose` |
//! | [`daemon`] | the one loop, and the one place where now is read | all of the above |
//! | [`cli`] | one file a command; text and tables | all of the above |
//!
//! Pure means: time and bytes come in as arguments, values go out; no socket, no clock, no
//! randomness, no runtime, no environment. `tests/layering.rs` reads the sources and says so.
//!
//! # The processes
//!
//! `adit run` is two processes of this program, and a third with a `[[notify]]`. The **steward** ([`daemon::steward`]) has the capabilities: it reads the
//! configuration's files, opens sockets, writes routes. The **prober** ([`daemon::prober`]) has none, and all that
//! strangers can reach: packets, clients. The steward hands it opened sockets and texts, and it can ask for
//! nothing but what is said in 32 bytes: what a tunnel costs, that a device be looked for, a reload. The demo
//! and tests have both in one process.
//!
//! The third is the **messenger** ([`daemon::messenger`]): no capability either, and the only one that runs programs of others and talks to the network's services. It follows the events as
//! any client does, so that nothing that hangs there can hold up a probe.
//!
//! # The way of a probe
//!
//! due → `schedule` names the tunnel → `wire::probe` patches its template (sequence, time, tag,
//! checksums; ESP seals) → one batch out → answers in one batch → filter in the kernel → `wire::probe`
//! parses (an association opens what is sealed), or a counted [`wire::Reject`] → `inflight` settles it
//! exactly once → sample → `health` (here it ends nearly always) → transition → penalty → `routes` →
//! events. Plain calls all along, starting in `Daemon::turn`; you can step through it in one sitting.
//!
//! # The way of a penalty
//!
//! `Engine::poll_steer` → a tunnel and what it costs, to the thread of [`daemon::steer`] → [`steer::Fib`]
//! compares what should be in the kernel with what is known to be → a batch of changes, new ones first →
//! [`io::fib`] has the kernel acknowledge them → the old ones go. What the kernel says unasked only means
//! "look again": a picture of all there is, and again the difference.

pub mod cli;
pub mod config;
pub mod daemon;
pub mod engine;
pub mod io;
pub mod notice;
pub mod reflect;
pub mod steer;
pub mod wire;
