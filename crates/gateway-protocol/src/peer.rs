//! Finds the user of a loopback connection.
//!
//! A TCP port has no permissions, so every user of the machine can connect. The kernel knows the owner of the
//! other end (`sock_diag(7)`) and can look up exactly this pair of addresses. `/proc/net/tcp` has the same
//! data, but must be read in full each time: a user with 100,000 sockets would make each connection cost a
//! second.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
/// Netlink header and `struct inet_diag_req_v2`.
const REQUEST: usize = 16 + 56;
/// Netlink header and `struct inet_diag_msg`.
const ANSWER: usize = 16 + 72;

/// Byte offsets in a response, from its start: the netlink header has 16 bytes, then comes `struct inet_diag_msg`.
mod at {
    pub(super) const KIND: usize = 4;
    pub(super) const STATE: usize = 16 + 1;
    pub(super) const PORTS: usize = 16 + 4;
    pub(super) const UID: usize = 16 + 64;
    pub(super) const INODE: usize = 16 + 68;
}

/// `TCP_LISTEN`: if there is no such connection, the kernel returns the socket that listens at the port.
const LISTENS: u8 = 10;

/// Returns the owner of the client's end of a connection from `client` to `server`, or `None` if it is
/// closed.
///
/// # Errors
/// If the kernel does not answer (its module `tcp_diag` is missing).
pub fn user(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    sendto(
        &socket,
        &request(client, server),
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )?;
    let mut buffer = [0; 512];
    // The kernel has queued its response before `sendto` returns.
    let (length, _) = recv(&socket, &mut buffer, RecvFlags::DONTWAIT)?;
    let answer = buffer.get(..length).unwrap_or_default();
    Ok(maker(answer, client.port(), server.port()))
}

/// Returns `true` if `user` may use the interface: its own user, and root, who could read the memory of both.
pub fn is_ours(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

fn request(client: SocketAddr, server: SocketAddr) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(REQUEST as u32).to_ne_bytes());
    put(at::KIND, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    let family = match client {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    put(16, &[family.as_raw() as u8, IPPROTO_TCP]);
    // All states.
    put(20, &u32::MAX.to_ne_bytes());
    put(24, &client.port().to_be_bytes());
    put(26, &server.port().to_be_bytes());
    for (at, address) in [(28, client.ip()), (44, server.ip())] {
        match address {
            IpAddr::V4(address) => put(at, &address.octets()),
            IpAddr::V6(address) => put(at, &address.octets()),
        }
    }
    // Any cookie.
    put(64, &u64::MAX.to_ne_bytes());
    request
}

/// Parses the owner, if the response is about this connection. A closed socket has no inode, and kernels
/// report root as its owner: a client that closes quickly must not pass for root.
fn maker(answer: &[u8], client: u16, server: u16) -> Option<u32> {
    let answer: &[u8; ANSWER] = answer.first_chunk()?;
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..)?.first_chunk().copied()?));
    let port = |at: usize| Some(u16::from_be_bytes(answer.get(at..)?.first_chunk().copied()?));
    let kind = u16::from_ne_bytes(answer.get(at::KIND..)?.first_chunk().copied()?);
    let ours = kind == SOCK_DIAG_BY_FAMILY
        && port(at::PORTS)? == client
        && port(at::PORTS + 2)? == server
        && answer[at::STATE] != LISTENS
        && word(at::INODE)? != 0;
    ours.then(|| word(at::UID)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn listener(address: &str) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn the_kernel_names_the_user_of_a_connection() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"] {
            let (_listener, server) = listener(address);
            let client = TcpStream::connect(server).unwrap();
            assert_eq!(
                user(client.local_addr().unwrap(), server).unwrap(),
                Some(own),
                "{address}"
            );
        }
        assert!(is_ours(own) && is_ours(0) && !is_ours(own + 12_345));
    }

    #[test]
    fn who_is_gone_or_only_listens_is_nobody() {
        let (accepting, server) = listener("127.0.0.1:0");
        let (_other, listening) = listener("127.0.0.1:0");
        assert_eq!(user(listening, server).unwrap(), None);
        let mut client = TcpStream::connect(server).unwrap();
        let address = client.local_addr().unwrap();
        let (_accepted, _) = accepting.accept().unwrap();
        // Closed, but not fully read by the other side: the kernel still has the socket, without an owner.
        std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\n\r\n").unwrap();
        drop(client);
        assert_eq!(user(address, server).unwrap(), None);
    }

    #[test]
    fn an_answer_must_be_whole_and_about_the_connection() {
        let mut answer = [0; ANSWER];
        answer[at::KIND..at::KIND + 2].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[at::STATE] = 1;
        answer[at::PORTS..at::PORTS + 4].copy_from_slice(&[0, 7, 0, 9]);
        answer[at::UID..at::UID + 4].copy_from_slice(&1000_u32.to_ne_bytes());
        answer[at::INODE..at::INODE + 4].copy_from_slice(&5_u32.to_ne_bytes());
        assert_eq!(maker(&answer, 7, 9), Some(1000));
        assert_eq!(maker(&answer, 9, 7), None);
        assert_eq!(maker(&answer[..ANSWER - 1], 7, 9), None);
        for (at, byte) in [(at::STATE, LISTENS), (at::INODE, 0), (at::KIND, 2)] {
            let mut other = answer;
            other[at] = byte;
            assert_eq!(maker(&other, 7, 9), None, "{at}");
        }
    }
}
