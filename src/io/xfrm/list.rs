//! The list of security associations, as bytes: the question, and the answer to it.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use netlink_packet_xfrm::state::GetDumpMessage;
use netlink_packet_xfrm::{AF_INET, AF_INET6, IPPROTO_ESP, UserSaInfo, XFRM_MSG_NEWSA, XfrmAttrs, XfrmMessage};
use rtnetlink::packet_core::{
    DecodeError, DoneBuffer, ErrorBuffer, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage,
};

use super::Association;

// Message types of netlink itself (linux/netlink.h).
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Asks for all associations of ESP.
pub(super) fn question() -> Vec<u8> {
    let only = GetDumpMessage { nlas: vec![XfrmAttrs::Proto(IPPROTO_ESP)] };
    let mut message = NetlinkMessage::from(XfrmMessage::GetDumpSa(only));
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Reads one datagram of the list, of whatever bytes, and says whether it was the last one.
///
/// # Errors
/// The kernel's refusal, or `InvalidData` where the bytes are no messages.
pub fn read(mut bytes: &[u8], found: &mut BTreeSet<Association>) -> io::Result<bool> {
    while !bytes.is_empty() {
        let message = NetlinkBuffer::new_checked(bytes).map_err(invalid)?;
        let payload = message.payload();
        match message.message_type() {
            XFRM_MSG_NEWSA => found.extend(association(payload).map_err(invalid)?),
            DONE => return outcome(DoneBuffer::new_checked(payload).map_or(0, |done| done.code())).map(|()| true),
            ERROR => {
                let error = ErrorBuffer::new_checked(payload).map_err(invalid)?;
                return outcome(error.code().map_or(0, Into::into)).map(|()| true);
            }
            _ => {}
        }
        // Each message begins at a multiple of four (NLMSG_ALIGN).
        let length = usize::try_from(message.length()).map_err(invalid)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The association of one entry, if it is one of ESP. What is behind the fixed part is not looked at.
fn association(payload: &[u8]) -> Result<Option<Association>, DecodeError> {
    let UserSaInfo { id, family, .. } = UserSaInfo::parse(payload)?;
    let destination = match family {
        AF_INET => IpAddr::V4(id.daddr.to_ipv4()),
        AF_INET6 => IpAddr::V6(id.daddr.to_ipv6()),
        _ => return Ok(None),
    };
    Ok((id.proto == IPPROTO_ESP).then_some((destination, id.spi)))
}

/// What the kernel's code at the end of a list or instead of it means.
fn outcome(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.saturating_neg())) }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESP: u8 = 50;
    const AH: u8 = 51;

    /// One netlink message (RFC 3549, section 2.3.2), padded to a multiple of four.
    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(16 + payload.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(16, 0);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// An entry laid out as linux/xfrm.h has `xfrm_usersa_info`, and a key behind it.
    fn entry(destination: &str, spi: u32, protocol: u8) -> Vec<u8> {
        let mut payload = vec![0; 224];
        let family: u16 = match destination.parse().unwrap() {
            IpAddr::V4(address) => {
                payload[56..60].copy_from_slice(&address.octets());
                2
            }
            IpAddr::V6(address) => {
                payload[56..72].copy_from_slice(&address.octets());
                10
            }
        };
        payload[72..76].copy_from_slice(&spi.to_be_bytes());
        payload[76] = protocol;
        payload[212..214].copy_from_slice(&family.to_ne_bytes());
        payload.extend([0x4B; 101]);
        message(XFRM_MSG_NEWSA, &payload)
    }

    fn esp(destination: &str, spi: u32) -> Association {
        (destination.parse().unwrap(), spi)
    }

    #[test]
    fn esp_associations_of_both_families_are_read_and_others_are_not() {
        let mut found = BTreeSet::new();
        let entries = [("192.0.2.1", 0x1001, ESP), ("2001:db8::1", 0xFFFF_FFFF, ESP), ("192.0.2.1", 0x1002, AH)];
        let bytes: Vec<u8> = entries.into_iter().flat_map(|(to, spi, protocol)| entry(to, spi, protocol)).collect();
        assert!(!read(&bytes, &mut found).unwrap(), "more is to come");
        assert!(read(&message(DONE, &[0; 4]), &mut found).unwrap());
        assert_eq!(found, BTreeSet::from([esp("192.0.2.1", 0x1001), esp("2001:db8::1", 0xFFFF_FFFF)]));
    }

    #[test]
    fn an_error_instead_of_the_list_or_at_its_end_is_one() {
        let permission = (-1_i32).to_ne_bytes();
        let refused = [message(ERROR, &[permission.as_slice(), &[0; 16]].concat()), message(DONE, &permission)];
        for bytes in refused {
            let error = read(&bytes, &mut BTreeSet::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn broken_bytes_are_an_error_or_end_early_but_no_panic() {
        let bytes = [entry("192.0.2.1", 1, ESP), message(ERROR, &[0; 4]), message(DONE, &[0; 4])].concat();
        for length in 0..bytes.len() {
            let _ = read(&bytes[..length], &mut BTreeSet::new());
        }
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = read(&flipped, &mut BTreeSet::new());
        }
        let short = message(XFRM_MSG_NEWSA, &[0; 223]);
        assert_eq!(read(&short, &mut BTreeSet::new()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_question_is_for_all_of_esp_only() {
        let [length, kind, flags] = [24_u16, 0x12, 0x301];
        let bytes = question();
        assert_eq!(bytes[..4], u32::from(length).to_ne_bytes());
        assert_eq!(bytes[4..8], [kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        // XFRMA_PROTO (25), one byte, padded.
        let [attribute_length, attribute] = [5_u16, 25].map(u16::to_ne_bytes);
        assert_eq!(bytes[16..], [&attribute_length[..], &attribute, &[ESP, 0, 0, 0]].concat());
    }
}
