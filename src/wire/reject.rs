//! One reason for every way a packet can be wrong.

use std::fmt;

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)+) => {
        /// Why a packet is no answer. A reject is a counter with a label: evidence of nothing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reject { $($(#[$doc])* $name,)+ }

        impl Reject {
            /// Every reason, in the order in which a packet meets them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name in counters, metrics and fixtures.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)+ }
            }
        }
    };
}

rejects! {
    /// The outermost IP header does not fit into the bytes.
    OuterTruncated = "outer-truncated",
    /// The outermost IP header contradicts itself (version, header length, total length).
    OuterMalformed = "outer-malformed",
    /// A fragment: probes never need one.
    OuterFragment = "outer-fragment",
    /// Neither GRE nor ICMP.
    OuterProtocol = "outer-protocol",
    /// The UDP datagram is not whole, or too short to be ESP (RFC 3948 section 2.1).
    UdpTruncated = "udp-truncated",
    /// UDP to another port than 4500.
    UdpPort = "udp-port",
    /// A NAT keep-alive (RFC 3948 section 2.3).
    KeepAlive = "keep-alive",
    /// IKE: zero where ESP has its SPI (RFC 3948 section 2.2).
    Ike = "ike",
    /// No room for ESP header, IV, trailer and ICV, or no whole number of cipher blocks.
    EspTruncated = "esp-truncated",
    /// No security association of ours has this SPI.
    EspSpi = "esp-spi",
    /// The ESP integrity check value is wrong: forged, corrupted, or other keys.
    EspIcv = "esp-icv",
    /// The ESP sequence number was there before, or is older than the replay window (RFC 4303
    /// section 3.4.3).
    EspReplay = "esp-replay",
    /// The ESP padding is longer than the packet, or not 1, 2, 3, … (RFC 4303 section 2.4).
    EspPadding = "esp-padding",
    /// Neither IPv4 nor IPv6 inside ESP, a dummy packet (RFC 4303 section 2.6) say.
    EspNextHeader = "esp-next-header",
    /// The GRE header's optional words do not fit into the bytes.
    GreTruncated = "gre-truncated",
    /// GRE version other than 0 (RFC 2784 section 2.3.1).
    GreVersion = "gre-version",
    /// The routing bit of RFC 1701, which RFC 2784 section 2.3 forbids.
    GreRouting = "gre-routing",
    /// A reserved bit that a receiver must refuse (RFC 2784 section 2.3).
    GreReserved = "gre-reserved",
    /// The GRE checksum is present and wrong.
    GreChecksum = "gre-checksum",
    /// Neither IPv4 nor IPv6 inside.
    GreProtocol = "gre-protocol",
    /// The inner IP header does not fit into the bytes.
    InnerTruncated = "inner-truncated",
    /// The inner IP header contradicts itself.
    InnerMalformed = "inner-malformed",
    /// The inner IPv4 header checksum is wrong.
    InnerChecksum = "inner-checksum",
    /// The inner packet is a fragment.
    InnerFragment = "inner-fragment",
    /// The inner packet is not ICMP of its family.
    InnerProtocol = "inner-protocol",
    /// No room for an ICMP echo header.
    IcmpTruncated = "icmp-truncated",
    /// Not an echo reply: every probe style comes back as one.
    IcmpType = "icmp-type",
    /// An echo message with a code other than 0 (RFC 792, RFC 4443 section 4).
    IcmpCode = "icmp-code",
    /// The ICMP checksum is wrong.
    IcmpChecksum = "icmp-checksum",
    /// Too short to be a probe of ours.
    PayloadShort = "payload-short",
    /// Not a probe of ours: somebody else's ping.
    Magic = "magic",
    /// A probe format that this version does not speak.
    Version = "version",
    /// The tag does not prove that this run of adit made it: forged or corrupted.
    Tag = "tag",
    /// A probe of another run: an answer that outlived a restart, or a second adit. In GRE and bare, the kernel's
    /// filter drops most of them unseen.
    OtherRun = "other-run",
    /// The tag is good, but no such tunnel exists (any more).
    UnknownTunnel = "unknown-tunnel",
    /// The tag is good, but this sequence was never sent.
    NeverSent = "never-sent",
    /// Bare where it must be encapsulated, or the other way round.
    WrongPath = "wrong-path",
    /// Encapsulated, but not from the tunnel's far endpoint to its near one.
    WrongOuter = "wrong-outer",
    /// Encapsulated with another GRE key than the tunnel's.
    WrongKey = "wrong-key",
    /// Inner addresses other than the probe's.
    WrongInner = "wrong-inner",
    /// Arrived in another network namespace than the tunnel's.
    WrongNamespace = "wrong-namespace",
    /// The reflector's mark is required and missing or wrong.
    Mark = "mark",
    /// Settled before: the same answer once more.
    Duplicate = "duplicate",
    /// After the deadline: the probe has been settled as a failure.
    Late = "late",
}

impl Reject {
    /// How many reasons there are; the size of a table of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// The place of this reason in a table of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
