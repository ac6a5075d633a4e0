//! Pulls from a registry on the loopback address, with the protocol's tokens and redirects, and from hostile ones.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};

use ringfence_images::{
    CredentialFiles, Digest, Error, Network, Progress, Pulled, Reference, RegistryError, pull,
};
use ringfence_network::egress::Resolver;
use ringfence_network::fetch::Trust;
use ringfence_testing::authority::{Authority, leaf};
use ringfence_testing::server::{Reply, Server};
use serde_json::{Value, json};

use crate::archives::*;

const TOKEN: &str = "t0ken";

/// Answers of a registry by path; what is missing is not found.
type Answers = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A registry that wants a token, and the server where its blobs are.
struct Registry {
    server: Server,
    blobs: Server,
    answers: Answers,
}

fn whole(body: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    Reply::Whole([head.as_bytes(), body].concat())
}

fn path(request: &str) -> String {
    request.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn not_found() -> Reply {
    Reply::text("404 Not Found", "{}")
}

impl Registry {
    async fn start() -> Self {
        let answers = Answers::default();
        let found = Arc::clone(&answers);
        let blobs = Server::start(move |request| {
            found
                .lock()
                .unwrap()
                .get(&path(request))
                .map_or_else(not_found, |body| whole(body))
        })
        .await;
        let (found, port) = (Arc::clone(&answers), blobs.port);
        let server = Server::start(move |request| {
            let path = path(request);
            let own = request.lines().find_map(|line| line.strip_prefix("host: "));
            if path.starts_with("/token?service=here&scope=repository%3Ateam%2Fapp%3Apull") {
                return whole(json!({"token": TOKEN}).to_string().as_bytes());
            }
            if !request.contains(&format!("authorization: Bearer {TOKEN}\r\n")) {
                let realm = format!("http://{}/token", own.unwrap_or_default());
                let challenge = format!("Bearer realm=\"{realm}\",service=\"here\",scope=\"x\"");
                return Reply::text(
                    &format!("401 Unauthorized\r\nWWW-Authenticate: {challenge}"),
                    "{}",
                );
            }
            if path.contains("/blobs/") {
                return Reply::redirect(&format!("http://127.0.0.1:{port}{path}"));
            }
            found
                .lock()
                .unwrap()
                .get(&path)
                .map_or_else(not_found, |body| whole(body))
        })
        .await;
        Self {
            server,
            blobs,
            answers,
        }
    }

    fn put(&self, path: &str, body: &[u8]) {
        let path = format!("/v2/team/app/{path}");
        self.answers.lock().unwrap().insert(path, body.to_vec());
    }

    /// Serves the image of a layout under the tag 1, in an index of two platforms.
    fn serve(&self, layout: &Layout) {
        for blob in fs::read_dir(layout.path.join("blobs/sha256")).unwrap() {
            let blob = blob.unwrap();
            let digest = format!("sha256:{}", blob.file_name().to_str().unwrap());
            let body = fs::read(blob.path()).unwrap();
            self.put(&format!("blobs/{digest}"), &body);
            self.put(&format!("manifests/{digest}"), &body);
        }
        let described = |digest: Digest, architecture: &str| json!({"digest": digest, "size": 1, "platform": {"os": "linux", "architecture": architecture}});
        let index = json!({
            "schemaVersion": 2,
            "manifests": [described(Digest::of(b"other"), "s390x"), described(layout.manifest, architecture())],
        });
        self.put("manifests/1", index.to_string().as_bytes());
    }

    fn reference(&self, tag: &str) -> Reference {
        reference(&format!("127.0.0.1:{}/team/app{tag}", self.server.port))
    }

    async fn pull(&self, place: &Place, tag: &str) -> Result<Pulled, Error> {
        pull(&place.store, &self.reference(tag), &network(), &mut |_| {}).await
    }
}

fn network() -> Network {
    Network {
        // No name of these tests is looked up anywhere.
        resolver: Resolver::fixed(|_| Vec::new()),
        trust: Arc::new(Trust::new(None)),
        credentials: CredentialFiles::none(),
    }
}

fn image(place: &Place) -> Layout {
    let layers = [tar(&[file("a", "a"), directory("app")]), tar(&[file("b", "b")])];
    layout(place.path(), &configuration(&layers), &layers)
}

#[tokio::test]
async fn an_image_is_pulled_with_a_token_and_its_blobs_without() {
    let (place, registry) = (Place::new(), Registry::start().await);
    registry.serve(&image(&place));
    let mut seen: Vec<Progress> = Vec::new();
    let reference = registry.reference(":1");
    let pulled = pull(&place.store, &reference, &network(), &mut |progress| {
        seen.push(progress)
    })
    .await;
    let pulled = pulled.unwrap();
    assert!(!pulled.was_there);
    let images = place.store.list().unwrap();
    assert_eq!(
        (images[0].digest, images[0].references.clone()),
        (pulled.digest, vec![reference])
    );
    assert_eq!(fs::read(place.root().join("b")).unwrap(), b"b");
    let last = seen.last().unwrap();
    assert_eq!((last.layer, last.layers, last.received), (2, 2, last.size));
    // One token for all, which only the registry itself is sent.
    let requests = registry.server.requests();
    let of_token = requests
        .iter()
        .filter(|request| request.starts_with("GET /token?"));
    assert!(of_token.clone().all(|request| !request.contains("authorization")));
    assert_eq!(of_token.count(), 1);
    assert_eq!(registry.blobs.requests().len(), 3);
    assert!(
        registry
            .blobs
            .requests()
            .iter()
            .all(|request| !request.contains(TOKEN))
    );
    // Known by its configuration, it needs no layer.
    let again = registry.pull(&place, ":1").await.unwrap();
    assert!(again.was_there);
    assert_eq!(registry.blobs.requests().len(), 4);
    place.assert_untouched(1);
}

#[tokio::test]
async fn a_digest_names_one_manifest() {
    let (place, registry) = (Place::new(), Registry::start().await);
    let layout = image(&place);
    registry.serve(&layout);
    let by_digest = format!("@{}", layout.manifest);
    registry.pull(&place, &by_digest).await.unwrap();
    let other = Digest::of(b"another");
    let manifest = fs::read(layout.path.join("blobs/sha256").join(layout.manifest.hex())).unwrap();
    registry.put(&format!("manifests/{other}"), &manifest);
    let error = registry.pull(&place, &format!("@{other}")).await.unwrap_err();
    assert!(
        matches!(error, Error::Digest { expected, .. } if expected == other),
        "{error}"
    );
    place.assert_untouched(1);
}

#[tokio::test]
async fn what_is_not_its_digest_is_not_unpacked() {
    let (place, registry) = (Place::new(), Registry::start().await);
    let layout = image(&place);
    registry.serve(&layout);
    for blob in fs::read_dir(layout.path.join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap();
        let name = format!("blobs/sha256:{}", blob.file_name().to_str().unwrap());
        let good = fs::read(blob.path()).unwrap();
        if good.starts_with(b"{\"schemaVersion\"") {
            continue;
        }
        let mut wrong = good.clone();
        wrong[20] ^= 1;
        for (bad, words) in [
            (wrong, "has the digest"),
            (good[1..].to_vec(), "has not the length"),
            ([&good[..], b"x"].concat(), "longer than expected"),
        ] {
            registry.put(&name, &bad);
            let error = registry.pull(&place, ":1").await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        registry.put(&name, &good);
    }
    place.assert_untouched(0);
}

/// Pulls from a server with these replies.
async fn refused(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Error {
    let (place, server) = (Place::new(), Server::start(reply).await);
    let reference = reference(&format!("127.0.0.1:{}/a", server.port));
    let error = pull(&place.store, &reference, &network(), &mut |_| {})
        .await
        .unwrap_err();
    place.assert_untouched(0);
    error
}

#[tokio::test]
async fn hostile_registries_are_refused() {
    let check = |error: Error, words: &str| assert!(error.to_string().contains(words), "{error}");
    check(refused(|_| not_found()).await, "no such image");
    check(
        refused(|_| Reply::text("403 Forbidden", "")).await,
        "requires credentials",
    );
    check(
        refused(|_| Reply::text("429 Too Many Requests", "")).await,
        "refuses more requests",
    );
    check(refused(|_| Reply::text("500 Oops", "")).await, "status 500");
    let schema1 = json!({"schemaVersion": 1, "fsLayers": []}).to_string();
    check(
        refused(move |_| whole(schema1.as_bytes())).await,
        "schema version 1",
    );
    check(
        refused(|_| Reply::Endless("HTTP/1.1 200 OK\r\n\r\n", "xxxxxxxxxxxxxxxxxxxxxxxxx")).await,
        "longer than",
    );
    check(
        refused(|_| Reply::redirect("/v2/elsewhere")).await,
        "redirects more than 5 times",
    );
    check(
        refused(|_| Reply::redirect("http://auth.test/x")).await,
        "names no usable address",
    );
    check(
        refused(|_| Reply::redirect("file:///etc/passwd")).await,
        "invalid redirect",
    );
    for (challenge, words) in [
        ("Basic realm=\"x\"", "requires credentials"),
        (
            "Bearer realm=\"http://auth.test/token\"",
            "names no usable address",
        ),
        (
            "Bearer realm=\"ftp://127.0.0.1/token\"",
            "names no usable address",
        ),
        ("Bearer realm=\"x\" y", "in no way that is supported"),
    ] {
        let head = format!("401 Unauthorized\r\nWWW-Authenticate: {challenge}");
        check(refused(move |_| Reply::text(&head, "")).await, words);
    }
    // A token server that is no better than the registry: each is asked once.
    let forever = |request: &str| {
        let host = request
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .unwrap();
        match request.starts_with("GET /token") {
            true => whole(br#"{"token": "useless"}"#),
            false => Reply::text(
                &format!("401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"http://{host}/token\""),
                "",
            ),
        }
    };
    check(refused(forever).await, "requires credentials");
}

#[tokio::test]
async fn an_index_in_an_index_for_ever_is_refused() {
    let server = Server::start(|_| {
        let platform = json!({"os": "linux", "architecture": architecture()});
        let next: Value = json!({"digest": Digest::of(b""), "size": 1, "platform": platform});
        whole(json!({"manifests": [next]}).to_string().as_bytes())
    })
    .await;
    let place = Place::new();
    let reference = reference(&format!("127.0.0.1:{}/a", server.port));
    let error = pull(&place.store, &reference, &network(), &mut |_| {})
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Digest { .. }), "{error}");
    place.assert_untouched(0);
}

#[tokio::test]
async fn a_registry_that_cannot_be_found_is_unreachable() {
    let place = Place::new();
    let error = pull(
        &place.store,
        &reference("registry.test/a"),
        &network(),
        &mut |_| {},
    )
    .await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, Error::Registry(RegistryError::Unreachable(_))),
        "{error}"
    );
}

#[tokio::test]
async fn a_registry_of_another_machine_is_spoken_to_by_https() {
    let place = Place::new();
    let layout = image(&place);
    let blobs = layout.path.join("blobs/sha256");
    let manifest = fs::read(blobs.join(layout.manifest.hex())).unwrap();
    let authority = Authority::new("known");
    let acceptor = authority.acceptor(&leaf(&["registry.test"]));
    let server = Server::secure(acceptor, move |request| {
        let path = path(request);
        match path.split_once("sha256:") {
            Some((_, hex)) => whole(&fs::read(blobs.join(hex)).unwrap()),
            None => whole(&manifest),
        }
    })
    .await;
    let network = |trust: Trust| Network {
        resolver: Resolver::fixed(|_| vec!["127.0.0.1".parse().unwrap()]),
        trust: Arc::new(trust),
        credentials: CredentialFiles::none(),
    };
    let name = |host: &str| reference(&format!("{host}:{}/app", server.port));
    let known = || network(Trust::new(Some(authority.file())));
    for (host, network) in [
        ("registry.test", network(Trust::new(None))),
        ("other.test", known()),
    ] {
        let error = pull(&place.store, &name(host), &network, &mut |_| {}).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
        assert!(error.hint().contains("egress.ca_file"), "{}", error.hint());
    }
    place.assert_untouched(0);
    pull(&place.store, &name("registry.test"), &known(), &mut |_| {})
        .await
        .unwrap();
    place.assert_untouched(1);
}
