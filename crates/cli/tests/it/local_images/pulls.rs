//! `ringfence image pull`, from a registry on the loopback address.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use ringfence_images::Digest;
use ringfence_testing::server::{Reply, Server};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::root_archive;
use crate::support::{Dir, finish};

/// `user:s3cret` in Base64.
const PAIR: &str = "dXNlcjpzM2NyZXQ=";

/// Returns the answers of a registry with one image, whose only layer is an archive.
pub(crate) fn answers(archive: &Path) -> HashMap<String, Vec<u8>> {
    let mut answers = HashMap::new();
    let mut put = |kind: &str, name: &str, body: Vec<u8>| -> Value {
        let digest = Digest::of(&body);
        let name = if name.is_empty() {
            digest.to_string()
        } else {
            name.to_owned()
        };
        let descriptor = json!({"digest": digest, "size": body.len(), "mediaType": "application/vnd.oci.image.layer.v1.tar"});
        answers.insert(format!("/v2/app/{kind}/{name}"), body);
        descriptor
    };
    let layer = put("blobs", "", fs::read(archive).unwrap());
    let configuration = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {
            "Env": ["PATH=/image/bin:/usr/bin", "COLOUR=red", "TMPDIR=/tmp", "BROKEN"],
            "WorkingDir": "/app",
            "User": "nobody",
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = put("blobs", "", configuration.to_string().into());
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    put("manifests", "1", manifest.to_string().into());
    answers
}

/// A registry in a thread of its own, which ends when this is dropped.
pub(crate) struct Registry {
    pub(crate) port: u16,
    requests: Arc<AtomicUsize>,
    _stop: oneshot::Sender<()>,
}

impl Registry {
    pub(crate) fn start(answers: HashMap<String, Vec<u8>>) -> Self {
        let (started, port) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let requests = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().unwrap().block_on(async {
                let server = Server::start(move |request| {
                    count.fetch_add(1, Ordering::SeqCst);
                    answer(&answers, request)
                });
                let server = server.await;
                started.send(server.port).unwrap();
                // An error when the test is over.
                let _ = stopped.await;
            });
        });
        Self {
            port: port.recv().unwrap(),
            requests,
            _stop: stop,
        }
    }
}

/// Answers a request. About images below `silent` the registry says nothing.
fn answer(answers: &HashMap<String, Vec<u8>>, request: &str) -> Reply {
    let path = request.split(' ').nth(1).unwrap_or_default();
    if path.starts_with("/v2/silent/") {
        return Reply::Silence;
    }
    // The same image for whoever has the password.
    let is_private = path.starts_with("/v2/private/");
    if is_private && !request.contains(&format!("authorization: Basic {PAIR}\r\n")) {
        return Reply::text("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"r\"", "{}");
    }
    let path = &path.replacen("/v2/private/", "/v2/app/", 1);
    let (status, body) = match answers.get(path) {
        Some(body) => ("200 OK", &body[..]),
        None => ("404 Not Found", &b""[..]),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    Reply::Whole([head.as_bytes(), body].concat())
}

#[test]
fn a_pulled_image_gives_its_variables_and_its_directory() {
    let dir = Dir::new();
    let registry = Registry::start(answers(&root_archive(&dir)));
    let name = format!("127.0.0.1:{}/app:1", registry.port);
    let run = |options: &[&str], code: &str| {
        dir.run([&["run", "--image", &name, "-l", "bash", "-c", code], options].concat())
    };
    run(&[], "true").refused(125, "there is no image");
    // No run pulls.
    assert_eq!(registry.requests.load(Ordering::SeqCst), 0);
    let pulled = dir.run(["image", "pull", &name]);
    assert!(pulled.ok().starts_with(&format!("{name}  sha256:")), "{pulled:?}");
    assert!(pulled.stderr.contains("asks for the user `nobody`"), "{pulled:?}");
    let print = "echo $PATH $COLOUR $BROKEN $HOME; pwd";
    assert_eq!(run(&[], print).ok(), "/image/bin:/usr/bin red /workspace\n/app\n");
    let own = ["--env", "COLOUR=blue", "--workspace", "."];
    assert_eq!(
        run(&own, print).ok(),
        "/image/bin:/usr/bin blue /tmp\n/workspace\n"
    );
    let missing = dir.run(["image", "pull", &name.replace("/app:1", "/app:2")]);
    missing.refused(125, "cannot pull the image: the registry has no such image");
}

#[test]
fn credentials_stay_outside() {
    let dir = Dir::new();
    let registry = Registry::start(answers(&root_archive(&dir)));
    let host = format!("127.0.0.1:{}", registry.port);
    let name = format!("{host}/private:1");
    let file = dir.write(
        "home/config.json",
        json!({"auths": {&host: {"auth": PAIR}}}).to_string(),
    );
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let pull = |variables: &[(&str, &Path)]| {
        let mut command = dir.command(["image", "pull", &name]);
        let pulled = finish(command.envs(variables.iter().copied()), b"");
        assert!(
            !pulled.stderr.contains(PAIR) && !pulled.stderr.contains("s3cret"),
            "{pulled:?}"
        );
        pulled
    };
    let docker = [("DOCKER_CONFIG", file.parent().unwrap())];
    let empty = dir.write("empty.json", "{}");
    mode(0o602);
    pull(&docker).refused(
        125,
        "expected a file that only its user can write, found mode 602",
    );
    mode(0o600);
    let denied = pull(&[docker[0], ("REGISTRY_AUTH_FILE", &empty)]);
    denied.refused(125, &format!("found none for {host} in {}", empty.display()));
    assert!(
        denied.stderr.contains(&format!("docker login {host}")),
        "{denied:?}"
    );
    pull(&docker).ok();
    // A guest sees no file of the user's, by whichever path.
    let read = format!(": < {}", file.display());
    let outside = finish(dir.program("bash").args(["-c", &read]), b"");
    assert_eq!(outside.status, 0, "{outside:?}");
    for options in [&["--image", &name][..], &[]] {
        let inside = dir.run([&["run", "-l", "bash", "-c", &read], options].concat());
        // The image's shell is another one, with words and a status of its own.
        assert!(matches!(inside.status, 1 | 2), "{inside:?}");
        assert!(inside.stderr.contains("No such file"), "{inside:?}");
    }
}

#[test]
fn a_registry_that_is_not_there_is_an_error() {
    let dir = Dir::new();
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let pull = dir.run(["image", "pull", &format!("127.0.0.1:{port}/other")]);
    pull.refused(125, "cannot reach 127.0.0.1");
}
