//! Pulls from registries that demand credentials.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use ringfence_images::{CredentialFiles, Error, Network, RegistryError, pull};
use ringfence_network::egress::Resolver;
use ringfence_network::fetch::Trust;
use ringfence_testing::server::{Reply, Server};
use serde_json::json;

use crate::archives::*;

/// `user:s3cret` in Base64.
const PAIR: &str = "dXNlcjpzM2NyZXQ=";
const TOKEN: &str = "t0ken";

fn header(request: &str, name: &str) -> Option<String> {
    let mut lines = request.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.map(str::to_owned)
}

fn whole(body: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    Reply::Whole([head.as_bytes(), body].concat())
}

fn challenge(text: &str) -> Reply {
    Reply::text(&format!("401 Unauthorized\r\nWWW-Authenticate: {text}"), "{}")
}

/// Answers requests for the image of a layout with this configuration.
fn contents(layout: &Layout) -> impl Fn(&str) -> Reply + Send + Sync + use<> {
    let (blobs, manifest) = (layout.path.join("blobs/sha256"), layout.manifest.hex());
    move |request| {
        let path = request.split(' ').nth(1).unwrap();
        let name = path.split_once("sha256:").map_or(&*manifest, |(_, hex)| hex);
        whole(&fs::read(blobs.join(name)).unwrap())
    }
}

/// A store, an image, and the files with credentials.
struct World {
    place: Place,
    layout: Layout,
}

impl World {
    fn new() -> Self {
        let place = Place::new();
        let layers = [tar(&[file("a", "a")])];
        let layout = layout(place.path(), &configuration(&layers), &layers);
        Self { place, layout }
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("auth.json")
    }

    /// Pulls the image of a server with this entry of credentials.
    async fn pull(&self, server: &Server, entry: serde_json::Value) -> Result<(), Error> {
        let registry = format!("127.0.0.1:{}", server.port);
        fs::write(self.file(), json!({"auths": {&registry: entry}}).to_string()).unwrap();
        let network = Network {
            resolver: Resolver::fixed(|_| Vec::new()),
            trust: Arc::new(Trust::new(None)),
            credentials: CredentialFiles {
                customary: vec![self.place.path().join("none.json"), self.file()],
                named: None,
                open: Arc::new(|path| File::open(path)),
            },
        };
        let reference = reference(&format!("{registry}/team/app:1"));
        let pulled = pull(&self.place.store, &reference, &network, &mut |_| {}).await;
        pulled.map(drop)
    }
}

/// Checks that no error shows a secret.
fn check(error: &Error, words: &[&str]) {
    let text = format!("{} {} {error:?}", ringfence_images::explain(error), error.hint());
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(
        !text.contains(PAIR) && !text.contains("s3cret") && !text.contains(TOKEN),
        "{text}"
    );
}

#[tokio::test]
async fn a_registry_that_demands_basic_gets_name_and_password() {
    let world = World::new();
    let elsewhere = Server::start(contents(&world.layout)).await;
    let (found, port) = (contents(&world.layout), elsewhere.port);
    let server = Server::start(move |request| match header(request, "authorization") {
        Some(value) if value == format!("Basic {PAIR}") => match request.contains("/blobs/") {
            // Another port is another origin.
            true => Reply::redirect(&format!(
                "http://127.0.0.1:{port}{}",
                request.split(' ').nth(1).unwrap()
            )),
            false => found(request),
        },
        _ => challenge("Basic realm=\"r\""),
    })
    .await;
    let error = world.pull(&server, json!({})).await.unwrap_err();
    check(
        &error,
        &[
            "requires credentials",
            "auth.json",
            "not there",
            "none.json",
            "docker login 127.0.0.1",
        ],
    );
    let error = world
        .pull(&server, json!({"auth": "dXNlcjpvdGhlcg=="}))
        .await
        .unwrap_err();
    check(&error, &["denies this image (status 401)", "auth.json"]);
    let error = world
        .pull(&server, json!({"identitytoken": "s3cret"}))
        .await
        .unwrap_err();
    check(&error, &["only a token"]);
    world.place.assert_untouched(0);
    world.pull(&server, json!({"auth": PAIR})).await.unwrap();
    world.place.assert_untouched(1);
    let requests = elsewhere.requests();
    assert!(!requests.is_empty() && requests.iter().all(|request| !request.contains("authorization")));
}

/// Starts a registry whose token server is itself, and asks for a password or, in a form, for an identity token.
async fn with_tokens(world: &World) -> Server {
    let found = contents(&world.layout);
    Server::start(move |request| {
        if request.contains("/token") {
            let by_form = request.starts_with("POST /token HTTP")
                && request.contains("grant_type=refresh_token")
                && request.contains("&scope=repository%3Ateam%2Fapp%3Apull&refresh_token=id%2Fs3cret");
            return match header(request, "authorization") {
                Some(value) if value == format!("Basic {PAIR}") => {
                    whole(format!(r#"{{"token": "{TOKEN}"}}"#).as_bytes())
                }
                None if by_form => whole(format!(r#"{{"access_token": "{TOKEN}"}}"#).as_bytes()),
                None if request.starts_with("GET ") => whole(br#"{"token": "anonymous"}"#),
                _ => challenge("Basic realm=\"r\""),
            };
        }
        match header(request, "authorization") {
            Some(value) if value == format!("Bearer {TOKEN}") => found(request),
            _ => {
                let host = header(request, "host").unwrap();
                challenge(&format!("Bearer realm=\"http://{host}/token\",service=\"here\""))
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_token_server_gets_the_password_or_the_identity_token() {
    for (entry, wrong) in [
        (json!({"auth": PAIR}), json!({"auth": "dXNlcjpvdGhlcg=="})),
        (
            json!({"auth": PAIR, "identitytoken": "id/s3cret"}),
            json!({"identitytoken": "id/other"}),
        ),
    ] {
        let world = World::new();
        let server = with_tokens(&world).await;
        // A private image, of which an anonymous token is not enough.
        check(
            &world.pull(&server, json!({})).await.unwrap_err(),
            &["requires credentials", "found none for 127.0.0.1"],
        );
        check(
            &world.pull(&server, wrong).await.unwrap_err(),
            &["denies this image", "auth.json"],
        );
        world.place.assert_untouched(0);
        world.pull(&server, entry).await.unwrap();
        world.place.assert_untouched(1);
        // The registry itself sees tokens only.
        let requests = server.requests();
        let of_images = requests.iter().filter(|request| request.starts_with("GET /v2/"));
        assert!(of_images.clone().count() > 3);
        assert!(
            of_images
                .into_iter()
                .all(|request| !request.contains("Basic") && !request.contains("s3cret"))
        );
    }
}

#[tokio::test]
async fn credentials_go_to_nobody_else() {
    let world = World::new();
    let thief = Server::start(|request| match request.contains("/token") {
        true => whole(format!(r#"{{"token": "{TOKEN}"}}"#).as_bytes()),
        false => challenge("Basic realm=\"thief\""),
    })
    .await;
    let port = thief.port;
    // Where a redirect leads, nobody may ask.
    let redirects = Server::start(move |_| Reply::redirect(&format!("http://127.0.0.1:{port}/v2/"))).await;
    let error = world.pull(&redirects, json!({"auth": PAIR})).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Registry(RegistryError::Elsewhere { status: 401, .. })
        ),
        "{error}"
    );
    // A token server on another host gets them by https alone.
    let realm = format!("Bearer realm=\"http://localhost:{port}/token\"");
    let clear = Server::start(move |_| challenge(&realm)).await;
    for entry in [json!({"auth": PAIR}), json!({"identitytoken": "s3cret"})] {
        check(
            &world.pull(&clear, entry).await.unwrap_err(),
            &["on localhost, which is another host"],
        );
    }
    // A token server sends them nowhere.
    for entry in [json!({"auth": PAIR}), json!({"identitytoken": "s3cret"})] {
        let sent_on = Server::start(move |request| match request.contains("/token") {
            true => Reply::Whole(
                format!(
                    "HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:{port}/token\r\nContent-Length: 0\r\n\r\n"
                )
                .into(),
            ),
            false => challenge(&format!(
                "Bearer realm=\"http://{}/token\"",
                header(request, "host").unwrap()
            )),
        })
        .await;
        assert!(world.pull(&sent_on, entry).await.is_err());
    }
    world.place.assert_untouched(0);
    let requests = thief.requests();
    assert!(!requests.is_empty());
    for request in requests {
        assert!(
            !request.contains(PAIR) && !request.contains("s3cret"),
            "{request}"
        );
    }
}
