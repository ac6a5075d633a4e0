//! An index of packages on the loopback address (PEP 503), with wheels that the test writes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::json;

use crate::support::finish;
use crate::world::World;

/// A wheel to write: its name and version, the packages that it needs, its files.
pub(crate) struct Wheel {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) needs: &'static [&'static str],
    pub(crate) files: &'static [(&'static str, &'static str)],
}

impl Wheel {
    pub(crate) fn file(&self) -> String {
        format!("{}-{}-py3-none-any.whl", self.name, self.version)
    }

    /// Writes the wheel, as a zip archive with its metadata, and returns its bytes.
    pub(crate) fn bytes(&self, world: &World) -> Vec<u8> {
        let info = format!("{}-{}.dist-info", self.name, self.version);
        let needs: String = self
            .needs
            .iter()
            .map(|need| format!("Requires-Dist: {need}\n"))
            .collect();
        let metadata = format!(
            "Metadata-Version: 2.1\nName: {}\nVersion: {}\n{needs}",
            self.name, self.version
        );
        let tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
        let names = self.files.iter().map(|(name, _)| *name);
        let record: String = names.map(|name| format!("{name},,\n")).collect();
        let mut entries: Vec<(String, String)> = vec![
            (format!("{info}/METADATA"), metadata),
            (format!("{info}/WHEEL"), tag.to_owned()),
            (format!("{info}/RECORD"), format!("{record}{info}/RECORD,,\n")),
        ];
        let files = self
            .files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        entries.extend(files);
        let path = world.dir.path(&self.file());
        let write = "import json, sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w') as archive:\n    for name, text in json.load(sys.stdin): archive.writestr(name, text)";
        let mut python = world.dir.program("python3");
        python.args(["-I", "-c", write]).arg(&path);
        finish(&mut python, json!(entries).to_string().as_bytes()).ok();
        fs::read(path).unwrap()
    }
}

type Pages = BTreeMap<String, Vec<u8>>;

/// A server of pages, which remembers the requested paths.
pub(crate) struct Index {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    closed: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl Index {
    /// Serves an index of wheels, with the right digests.
    pub(crate) fn of(world: &World, wheels: &[Wheel]) -> Self {
        let mut pages = Pages::new();
        for wheel in wheels {
            let bytes = wheel.bytes(world);
            let page = link(&format!("/files/{}", wheel.file()), &digest(world, &bytes));
            pages.insert(format!("/simple/{}/", wheel.name.replace('_', "-")), page);
            pages.insert(format!("/files/{}", wheel.file()), bytes);
        }
        Self::serve(pages)
    }

    /// Serves an index of wheels, and configures it.
    pub(crate) fn configured(world: &World, wheels: &[Wheel]) -> Self {
        let index = Self::of(world, wheels);
        index.configure(world, "");
        index
    }

    /// Serves pages.
    pub(crate) fn serve(pages: Pages) -> Self {
        Self::serve_at(|_| pages)
    }

    /// Serves pages that are made once the port is known.
    pub(crate) fn serve_at(pages: impl FnOnce(u16) -> Pages) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let pages = pages(port);
        let (requests, closed) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (heard, over) = (Arc::clone(&requests), Arc::clone(&closed));
        let serving = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                // One that hung up has no answer.
                drop(answer(stream.unwrap(), &pages, &heard));
            }
        });
        Self {
            port,
            requests,
            closed,
            serving: Some(serving),
        }
    }

    /// Writes the configuration of a user of this index, with further lines.
    pub(crate) fn configure(&self, world: &World, more: &str) {
        let config = format!(
            "[egress]\nprivate_networks = ['127.0.0.0/8']\n[packages]\nindex = 'http://127.0.0.1:{}/simple'\n{more}",
            self.port
        );
        world.dir.write("config/ringfence/ringfence.toml", config);
    }

    /// Returns the number of requests of paths that begin so.
    pub(crate) fn requests(&self, path: &str) -> usize {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|request| request.starts_with(path))
            .count()
    }

    /// Stops listening.
    pub(crate) fn close(&mut self) {
        if let Some(serving) = self.serving.take() {
            self.closed.store(true, Ordering::Relaxed);
            drop(TcpStream::connect(("127.0.0.1", self.port)));
            serving.join().unwrap();
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.close();
    }
}

fn answer(mut stream: TcpStream, pages: &Pages, heard: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => request.extend_from_slice(&buffer[..length]),
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, body) = match pages.get(&path) {
        Some(body) => ("200 OK", body.as_slice()),
        None => ("404 Not Found", &b""[..]),
    };
    heard.lock().unwrap().push(path.clone());
    let kind = if path.ends_with('/') {
        "text/html"
    } else {
        "application/octet-stream"
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

/// Returns a page that links to a file with a digest.
pub(crate) fn link(url: &str, digest: &str) -> Vec<u8> {
    let name = url.rsplit('/').next().unwrap_or_default();
    format!("<!DOCTYPE html><html><body><a href=\"{url}#sha256={digest}\">{name}</a></body></html>")
        .into_bytes()
}

pub(crate) fn digest(world: &World, bytes: &[u8]) -> String {
    let digest = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())";
    let mut python = world.dir.program("python3");
    finish(python.args(["-I", "-c", digest]), bytes)
        .ok()
        .trim()
        .to_owned()
}
