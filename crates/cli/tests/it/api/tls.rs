//! `ringfence serve --listen` with `--tls-cert` and `--tls-key`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;

use ringfence_testing::authority::{Authority, expired_leaf, leaf};
use serde_json::json;

use super::listen::listening;
use super::{BEARER, KEY, Surface};
use crate::support::eventually;
use crate::world::World;

/// Runs a program at an address given as CA, HOST:PORT and KEY, with Python's own TLS, which checks the certificate.
const CLIENT: &str = r#"
import http.client, json, ssl, sys
ca, address, key = sys.argv[1:]
connection = http.client.HTTPSConnection(address, context=ssl.create_default_context(cafile=ca))
connection.request("POST", "/v1/run", json.dumps({"code": "print(6 * 7)"}),
                   {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
certificate, version = connection.sock.getpeercert(), connection.sock.version()
response = connection.getresponse()
print(response.status, json.load(response).get("stdout", ""), certificate["serialNumber"], version)
"#;

/// A certificate with its key in the files of a server.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(world: &World, authority: &Authority) -> Self {
        let files = Self {
            certificate: world.dir.path("work/certificate.pem"),
            key: world.dir.path("work/key.pem"),
        };
        files.write(authority);
        files
    }

    /// Replaces both, the certificate by another one.
    fn write(&self, authority: &Authority) {
        let (certificate, key) = authority.issue(&leaf(&["127.0.0.1"]));
        replace(&self.key, &key);
        replace(&self.certificate, &certificate);
    }

    fn options(&self) -> [&str; 4] {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| path.to_str().unwrap());
        ["--tls-cert", certificate, "--tls-key", key]
    }
}

fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&new, path).unwrap();
}

/// Asks with the given authority and key.
fn ask(world: &World, authority: &Authority, address: &str, key: &str) -> Output {
    let mut client = world.dir.program("/usr/bin/python3");
    client.args(["-I", "-c", CLIENT]);
    client.arg(authority.file()).args([address, key]);
    client.output().unwrap()
}

/// Returns the words of a successful answer: status, output, serial number, version.
#[track_caller]
fn answer(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn an_address_with_a_certificate_serves_https() {
    let world = World::before_engine();
    let authority = Authority::new("ours");
    let files = Files::of(&world, &authority);
    // The wildcard address needs no `--plain-http` with it; the test connects by loopback.
    let endpoints = listening(
        &world,
        &[&["--listen", "0.0.0.0:0"][..], &files.options()].concat(),
    );
    let url = endpoints
        .iter()
        .find_map(|url| url.strip_prefix("https://0.0.0.0:"));
    let port: u16 = url.unwrap().parse().unwrap();
    let address = format!("127.0.0.1:{port}");

    let found = answer(&ask(&world, &authority, &address, KEY));
    assert_eq!((&*found[0], &*found[1], &*found[3]), ("200", "42", "TLSv1.3"));
    assert_eq!(answer(&ask(&world, &authority, &address, "wrong"))[0], "401");
    let stranger = ask(&world, &Authority::new("theirs"), &address, KEY);
    let error = String::from_utf8_lossy(&stranger.stderr);
    assert!(error.contains("CERTIFICATE_VERIFY_FAILED"), "{error}");
    // Without TLS there is no answer, with or without a key.
    let plain = Surface::Tcp(address.parse().unwrap()).ask("POST /v1/run", &[BEARER], "{}");
    assert_eq!((plain.status, &*plain.body), (0, ""), "{plain:?}");

    // A key that does not belong to the certificate leaves both in use.
    replace(&files.key, &authority.issue(&leaf(&["127.0.0.1"])).1);
    let (before, mut after) = (found[2].clone(), found[2].clone());
    // Nobody connects meanwhile.
    eventually("the server tells of it", || {
        world.engine_log().contains("the certificate is not renewed")
    });
    assert_eq!(answer(&ask(&world, &authority, &address, KEY))[2], before);
    let ready = || Surface::socket(&world).ask("GET /readyz", &[], "");
    assert_eq!(
        (ready().status, &ready().json()["certificate"]),
        (200, &json!("stale"))
    );
    let gauge = || Surface::socket(&world).ask("GET /metrics", &[], "").body;
    assert!(gauge().contains("ringfence_tls_certificate_stale 1\n"));
    let doctor = || world.dir.run(["doctor"]).stdout;
    let told = "cannot use the renewed files of its certificate";
    assert!(doctor().contains(told), "{}", doctor());
    files.write(&authority);
    eventually("the renewed certificate is used", || {
        after.clone_from(&answer(&ask(&world, &authority, &address, KEY))[2]);
        after != before
    });
    assert!(ready().json()["certificate"].is_null());
    assert!(
        world
            .engine_log()
            .contains("the certificate is in use as its files have it")
    );
    assert!(gauge().contains("ringfence_tls_certificate_stale 0\n"));
    assert!(!doctor().contains(told));

    // Neither does a certificate that clients would refuse replace one that they accept.
    let renewed = after.clone();
    let (expired, key) = authority.issue(&expired_leaf(&["127.0.0.1"]));
    replace(&files.key, &key);
    replace(&files.certificate, &expired);
    eventually("the server tells of the expired certificate", || {
        world.engine_log().contains("clients refuse the certificate")
    });
    assert_eq!(answer(&ask(&world, &authority, &address, KEY))[2], renewed);
    assert_eq!(ready().json()["certificate"], json!("stale"));
    world.close();
}

#[test]
fn files_that_cannot_be_used_are_named_before_anything_starts() {
    let world = World::before_engine();
    let authority = Authority::new("ours");
    let files = Files::of(&world, &authority);
    let serve = |options: &[&str]| world.dir.run([&["serve"], options].concat());
    let at = ["--listen", "127.0.0.1:0"];
    let with = |options: &[&str]| serve(&[&at[..], options].concat());
    let [cert, certificate, key_option, key] = files.options();

    // What clap says takes several lines.
    let misused = |output: crate::support::Output, option: &str| {
        assert!(output.status == 2 && output.stderr.contains(option), "{output:?}");
    };
    misused(with(&[cert, certificate]), "--tls-key");
    misused(with(&[key_option, key]), "--tls-cert");
    misused(serve(&files.options()), "--listen");
    misused(
        with(&[&files.options()[..], &["--plain-http"]].concat()),
        "--plain-http",
    );
    let socket = format!("unix:{}", world.dir.path("work/api.sock").display());
    serve(&[&["--listen", &socket][..], &files.options()].concat()).refused(2, "a Unix socket has no TLS");

    with(&[cert, "missing.pem", key_option, key]).refused(125, "cannot open missing.pem");
    with(&[cert, key, key_option, key]).refused(125, "expected a certificate as PEM");
    with(&[cert, certificate, key_option, certificate]).refused(125, "expected a private key as PEM");
    let expired = world.dir.path("work/expired.pem");
    replace(&expired, &authority.issue(&expired_leaf(&["127.0.0.1"])).0);
    with(&[cert, expired.to_str().unwrap(), key_option, key]).refused(125, "clients refuse the certificate");
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644)).unwrap();
    with(&files.options()).refused(125, "every user of this machine may read the key");
    replace(&files.key, &authority.issue(&leaf(&["127.0.0.1"])).1);
    with(&files.options()).refused(125, "cannot be used together");
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        std::os::unix::fs::chown(&files.key, Some(65_534), None).unwrap();
        with(&files.options()).refused(125, "belongs to user 65534");
    }
    // A program that may write there could replace them.
    files.write(&authority);
    let here = world.dir.path("work");
    world
        .dir
        .run(["run", "--workspace", here.to_str().unwrap(), "-c", ""])
        .ok();
    with(&files.options()).refused(125, "where programs could write");
    world.close();
}
