//! Detects addresses of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Arbitrary: nothing is sent.
const PORT: u16 = 9;

/// Returns `true` if the kernel would use the address itself as the source, as it does for its own addresses.
pub(super) fn is_own(address: IpAddr) -> bool {
    // Without a route to the address, no service on it is reachable either.
    source_for(address.to_canonical()).is_ok_and(|source| source == address.to_canonical())
}

fn source_for(address: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(SocketAddr::new(address, PORT))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_own_addresses_from_others() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_own(address.parse().unwrap()), expected, "{address}");
        }
    }
}
