//! Two namespaces with a wire between them, and a look at every packet that comes to one of them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use adit::io::netns;
use libtest_mimic::Failed;
use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{SockaddrStorage, recvfrom, setsockopt, sockopt};
use socket2::{Domain, Socket, Type};

use crate::router::run;

/// How long anything that must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// `near` (192.0.2.1, 2001:db8::1) and `far` (192.0.2.2, 2001:db8::2), each with a device `wire`.
pub(crate) struct Two {
    pub(crate) near: File,
    pub(crate) far: File,
}

impl Two {
    /// Two namespaces whose wire carries.
    pub(crate) fn new() -> Result<Self, Failed> {
        let two = Self { near: netns::make()?, far: netns::make()? };
        let peer = format!("/proc/{}/fd/{}", std::process::id(), two.far.as_raw_fd());
        two.near(&format!("ip link add wire type veth peer name wire netns {peer}"))?;
        let side = |n| {
            format!(
                "for c in all default; do echo 0 > /proc/sys/net/ipv4/conf/$c/rp_filter; done
                 echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
                 ip link set lo up; ip link set wire up
                 ip addr add 192.0.2.{n}/24 dev wire; ip addr add 2001:db8::{n}/64 dev wire nodad"
            )
        };
        two.near(&side(1))?;
        two.far(&side(2))?;
        // A new wire carries nothing until the kernel has noticed it.
        two.near(
            "for to in 192.0.2.2 2001:db8::2; do
                    for n in $(seq 20); do ping -c 1 -W 1 $to >/dev/null && continue 2; done; exit 1
                  done",
        )?;
        Ok(two)
    }

    /// Runs a shell script in the near namespace.
    pub(crate) fn near(&self, script: &str) -> io::Result<()> {
        netns::within(Some(&self.near), || run(script))
    }

    /// Runs a shell script in the far namespace.
    pub(crate) fn far(&self, script: &str) -> io::Result<()> {
        netns::within(Some(&self.far), || run(script))
    }
}

/// The index of a device.
pub(crate) fn index(namespace: &File, device: &str) -> io::Result<u32> {
    netns::within(Some(namespace), || Ok(if_nametoindex(device)?))
}

/// Sees every packet that comes to a namespace, by whichever device, from its IP header on.
pub(crate) struct Tap {
    socket: OwnedFd,
}

impl Tap {
    pub(crate) fn open(namespace: &File) -> io::Result<Self> {
        let every = i32::from(u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be());
        let socket = netns::within(Some(namespace), || Socket::new(Domain::PACKET, Type::DGRAM, Some(every.into())))?;
        socket.set_nonblocking(true)?;
        // Nothing is to be missed between two looks.
        setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20))?;
        Ok(Self { socket: socket.into() })
    }

    /// The first packet by this device that `is_it`, passed over all others.
    pub(crate) fn find(&self, device: u32, what: &str, is_it: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, Failed> {
        let mut seen = Vec::new();
        let found = holds_in_time(|| {
            while let Some((by, packet)) = self.next()? {
                if by == device && is_it(&packet) {
                    return Ok(Some(packet));
                }
                seen.push(format!("{by}: {}", hex(&packet)));
            }
            Ok(None)
        })?;
        found.ok_or_else(|| {
            format!("not seen by device {device} in {PATIENCE:?}: {what}; but\n{}", seen.join("\n")).into()
        })
    }

    /// What has come since the last look.
    pub(crate) fn next(&self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let mut packet = vec![0; 2_048];
        loop {
            let (length, from) = match recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut packet) {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let Some(link) = from.as_ref().and_then(SockaddrStorage::as_link_addr) else { continue };
            // Its own packets come by here, too, on their way out.
            if link.pkttype() != libc::PACKET_OUTGOING {
                packet.truncate(length);
                return Ok(Some((u32::try_from(link.ifindex()).map_err(io::Error::other)?, packet)));
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asks again until there is an answer, or patience ends.
#[expect(clippy::disallowed_methods, reason = "real packets take real time")]
pub(crate) fn holds_in_time<T>(mut ask: impl FnMut() -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if begin.elapsed() > PATIENCE {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
