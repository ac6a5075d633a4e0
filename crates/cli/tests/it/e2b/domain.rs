//! Names of sandboxes below a domain, by HTTPS.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use ringfence_testing::authority::{Authority, leaf};

use crate::api::KEY;
use crate::api::listen::listening;
use crate::world::{World, repository, skip};

/// Writes a certificate for these names and its key, and returns the options that name both.
fn issue(world: &World, authority: &Authority, names: &[&str]) -> [String; 4] {
    let (certificate, key) = authority.issue(&leaf(names));
    let write = |name: &str, text: &str| {
        let path = world.dir.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    [
        "--tls-cert".to_owned(),
        write("work/certificate.pem", &certificate),
        "--tls-key".to_owned(),
        write("work/key.pem", &key),
    ]
}

/// Starts a server with the domain `sandboxes.test`, and returns its port.
pub(super) fn serve(world: &World, authority: &Authority) -> String {
    let tls = issue(world, authority, &["*.sandboxes.test"]);
    let mut options = vec!["--listen", "127.0.0.1:0", "--domain", "Sandboxes.test"];
    options.extend(tls.iter().map(String::as_str));
    let endpoints = listening(world, &options);
    let port = endpoints
        .iter()
        .find_map(|url| url.strip_prefix("https://127.0.0.1:"));
    port.unwrap().to_owned()
}

#[track_caller]
pub(super) fn succeeds(client: &mut Command) {
    let output = client.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "done\n", "{}", text(&output.stderr));
}

#[test]
fn sandboxes_have_names_of_their_own() {
    let world = World::before_engine();
    let authority = Authority::new("ours");
    let port = serve(&world, &authority);
    let mut client = world.dir.program("/usr/bin/python3");
    client.args(["-I", "-c", include_str!("domain.py")]);
    client.arg(authority.file()).args([&port, KEY]);
    succeeds(&mut client);
    // A probe asks by the address, and reaches nothing else so.
    let status = |path: &str| {
        let mut curl = world.dir.program("curl");
        curl.args([
            "--silent",
            "--insecure",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ]);
        let asked = curl
            .arg(format!("https://127.0.0.1:{port}{path}"))
            .output()
            .unwrap();
        String::from_utf8(asked.stdout).unwrap()
    };
    assert_eq!(
        ["/healthz", "/readyz", "/v1/sandboxes"].map(status),
        ["200", "200", "421"]
    );
    world.close();
}

#[test]
fn the_client_of_e2b_works_with_a_domain() {
    let Ok(venv) = repository("target/e2b-venv").canonicalize() else {
        return skip("no target/e2b-venv (`cargo xtask setup` makes it)").unwrap_or_default();
    };
    let world = World::before_engine();
    let authority = Authority::new("ours");
    let port = serve(&world, &authority);
    let mut client = world.dir.program(venv.join("bin/python"));
    client.args(["-c", include_str!("domain_client.py"), &port]);
    client
        .env("E2B_API_KEY", KEY)
        .env("SSL_CERT_FILE", authority.file());
    succeeds(client.env("E2B_CONNECTION_RETRIES", "0"));
    world.close();
}

#[test]
fn a_domain_and_its_certificate_are_checked_before_anything_starts() {
    let world = World::before_engine();
    let authority = Authority::new("ours");
    let serve = |domain: &str, more: &[String]| {
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--domain", domain];
        arguments.extend(more.iter().map(String::as_str));
        world.dir.run(arguments)
    };
    let tls = issue(&world, &authority, &["sandboxes.test", "api.sandboxes.test"]);
    serve("sandboxes.test", &tls).refused(125, "is not for `49983-sandbox.sandboxes.test`");
    serve("other.test", &tls).refused(125, "is not for `api.other.test`");
    for (domain, more, part) in [
        ("localhost", &tls[..], "expected a domain such as"),
        ("*.sandboxes.test", &tls, "expected a domain such as"),
        ("sandboxes.test", &[], "--tls-cert"),
    ] {
        let output = serve(domain, more);
        assert!(output.status == 2 && output.stderr.contains(part), "{output:?}");
    }
    world.close();
}
