//! Threat: the network, and the sockets of the host's services.

use std::io::Read;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::fence::Fence;
use super::probe::{Probe, deny, deny_all, probe};

/// Socket families available to any user outside.
pub(super) const SURFACE: &[Probe] = &[
    probe("AF_ALG", "EPERM", "socket.socket(38, socket.SOCK_SEQPACKET)"),
    probe(
        "AF_NETLINK",
        "EPERM",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    ),
    probe("AF_VSOCK", "EPERM", "socket.socket(40, socket.SOCK_STREAM)"),
    probe(
        "UDP",
        "EACCES",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    ),
    probe(
        "UDP over IPv6",
        "EACCES",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    ),
    probe(
        "a family with rubbish in the bits above the kernel's",
        "EACCES",
        "call(number(41, 198), 0x700000002, socket.SOCK_STREAM, 0)",
    ),
];

pub(super) const PRIVILEGED: &[Probe] = &[
    probe(
        "AF_PACKET",
        "EPERM",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    ),
    probe("AF_XDP", "EPERM", "socket.socket(44, socket.SOCK_RAW)"),
    probe(
        "raw IP",
        "EACCES",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    ),
];

pub(super) const CONNECT: Probe = probe(
    "TCP to loopback",
    "EACCES",
    "socket.socket(socket.AF_INET).connect(('127.0.0.1', int(ARGS[0])))",
);

pub(super) const CONNECT_6: Probe = probe(
    "TCP to loopback over IPv6",
    "EACCES",
    "socket.socket(socket.AF_INET6).connect(('::1', int(ARGS[0])))",
);

const UNIX: &str = "socket.socket(socket.AF_UNIX).connect(ARGS[0].replace('@', '\\0'))";

#[test]
fn families_other_than_unix_are_refused() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, SURFACE);
        deny_all(&fence, PRIVILEGED);
    }
}

#[test]
fn a_service_on_loopback_is_out_of_reach() {
    let Some(fence) = Fence::root() else { return };
    for (address, probe) in [("127.0.0.1:0", CONNECT), ("[::1]:0", CONNECT_6)] {
        let Ok(listener) = TcpListener::bind(address) else {
            eprintln!("skipped: {}: this machine has no such address", probe.name);
            continue;
        };
        let port = listener.local_addr().unwrap().port().to_string();
        deny(&fence, &[], &probe, &[&port]);
    }
}

#[test]
fn named_sockets_of_host_services_are_out_of_reach() {
    let Some(fence) = Fence::root() else { return };
    let path = fence.dir.path("service.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let unreachable = probe("a socket with a path", "ENOENT", UNIX);
    deny(&fence, &[], &unreachable, &[path.to_str().unwrap()]);
}

#[test]
fn abstract_sockets_of_host_services_are_out_of_reach() {
    let Some(fence) = Fence::root() else { return };
    let name = format!("ringfence-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    // There is no such name in the guest's network namespace.
    let unreachable = probe("an abstract socket", "ECONNREFUSED", UNIX);
    deny(&fence, &[], &unreachable, &[&format!("@{name}")]);
}

/// A mounted directory may contain the socket of a service: a file like any other, but a way out.
#[test]
fn a_socket_in_a_mounted_directory_is_out_of_reach() {
    let Some(fence) = Fence::root() else { return };
    std::fs::create_dir(fence.dir.path("work/data")).unwrap();
    let listener = UnixListener::bind(fence.dir.path("work/data/service.sock")).unwrap();
    listener.set_nonblocking(true).unwrap();
    for access in ["ro", "rw"] {
        let mount = format!("data:/data:{access}");
        let connect = super::probe::program("socket.socket(socket.AF_UNIX).connect('/data/service.sock')");
        let output = fence.inside(&["--mount", &mount], &connect, &[]);
        // There is no socket to connect with.
        assert_eq!(super::probe::verdict(&output), "errno EPERM", "{access}");
        assert!(listener.accept().is_err(), "{access}");
    }
}

/// Sockets can transfer descriptors, so that two runs must share none.
#[test]
fn two_runs_share_no_socket_names() {
    let Some(fence) = Fence::root() else { return };
    let listen = "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('\\0meet'); s.listen()\n\
                  print('ready', flush=True)\ninput()";
    let mut first = fence.ringfence(&["--stdin", "-", "-c", listen]);
    let mut first = first
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    first.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let connect = super::probe::program("socket.socket(socket.AF_UNIX).connect('\\0meet')");
    let output = fence.inside(&[], &connect, &[]);
    drop(first.stdin.take());
    first.wait().unwrap();
    assert_eq!(&ready, b"ready\n");
    assert_eq!(super::probe::verdict(&output), "errno ECONNREFUSED");
}

#[test]
fn there_is_only_a_loopback_and_it_is_down() {
    let Some(fence) = Fence::root() else { return };
    let code = "import fcntl, socket, struct\n\
                names = [line.split(':')[0].strip() for line in list(open('/proc/net/dev'))[2:]]\n\
                ask = struct.pack('16sH14x', b'lo', 0)\n\
                flags = struct.unpack_from('H', fcntl.ioctl(socket.socket(socket.AF_UNIX), 0x8913, ask), 16)[0]\n\
                print(names == ['lo'], flags & 1, len(open('/proc/net/if_inet6').read()))";
    let raise = probe(
        "bringing the loopback up",
        "EPERM",
        "import fcntl\n\
         ask = struct.pack('16sH14x', b'lo', 0)\n\
         now = fcntl.ioctl(socket.socket(socket.AF_UNIX), 0x8913, ask)\n\
         ask = struct.pack('16sH14x', b'lo', struct.unpack_from('H', now, 16)[0] | 1)\n\
         fcntl.ioctl(socket.socket(socket.AF_UNIX), 0x8914, ask)",
    );
    assert_ne!(fence.outside(code, &[]).stdout, "True 0 0\n");
    assert_eq!(fence.printed(&[], code), "True 0 0\n");
    deny(&fence, &[], &raise, &[]);
}
