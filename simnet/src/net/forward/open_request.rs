//! Recognises the first packet of a TCP connection.

use std::net::Ipv4Addr;

/// Flags of the TCP header (RFC 9293, 3.1).
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The port that `packet` asks `host` to open a connection to: IPv4 (RFC 791), TCP (RFC 9293) with SYN and without ACK.
pub(super) fn requested_port(packet: &[u8], host: Ipv4Addr) -> Option<u16> {
    let header = packet.first_chunk::<20>()?;
    let (version, words) = (header[0] >> 4, usize::from(header[0] & 0xF));
    let fragment_offset = u16::from_be_bytes([header[6], header[7]]) & 0x1FFF;
    if version != 4 || words < 5 || header[9] != 6 || fragment_offset != 0 || header[16..20] != host.octets()
    {
        return None;
    }
    let tcp = packet.get(words * 4..)?.first_chunk::<20>()?;
    (tcp[13] & (SYN | ACK) == SYN).then(|| u16::from_be_bytes([tcp[2], tcp[3]]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

    /// As captured: `curl http://10.77.0.1:8080/`, 60 bytes, flags in byte 33.
    fn syn() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 60, 0x1d, 0xc2, 0x40, 0, 0x40, 6, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1];
        packet.extend([0xd4, 0x31, 0x1f, 0x90, 1, 2, 3, 4, 0, 0, 0, 0, 0xa0, 0x02, 0xfa, 0xf0, 0, 0, 0, 0]);
        packet.resize(60, 0);
        packet
    }

    #[test]
    fn only_the_first_packet_of_a_connection_to_the_host_is_one() {
        assert_eq!(requested_port(&syn(), HOST), Some(8080));
        for (index, value) in [(33, 0x12), (33, 0x10), (9, 17), (19, 3), (0, 0x65), (0, 0x44), (7, 1)] {
            let mut other = syn();
            other[index] = value;
            assert_eq!(requested_port(&other, HOST), None, "byte {index} = {value:#x}");
        }
        let mut with_options = syn();
        with_options[0] = 0x46;
        with_options.splice(20..20, [1, 1, 1, 1]);
        assert_eq!(requested_port(&with_options, HOST), Some(8080));
    }

    proptest! {
        #[test]
        fn cut_and_random_packets_are_no_requests(length in 0usize..40, noise in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(requested_port(&syn()[..length], HOST), None);
            if requested_port(&noise, HOST).is_some() {
                prop_assert_eq!(&noise[16..20], HOST.octets());
            }
        }
    }
}
