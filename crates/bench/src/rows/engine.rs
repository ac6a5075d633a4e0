//! Requests to a server.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ringfence_policy::{Language, Limits, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::super::context::BenchContext;
use super::super::engine::{WORLD, request as run_of, request_within, send, send_print};
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::{milliseconds, processor_time, time};

const REQUESTS: usize = 300;
const REQUESTS_BUDGET: Duration = Duration::from_secs(6);

/// Pause between requests, so that each meets an idle server, as with a client that thinks in between. The
/// throughput row measures a server without pauses.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) fn request(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let python = place.interpreter(Language::Python)?;
    let mut plain = place.plain(&python, &["-I", "-S", "-c", "print(1)"]);
    place.engine()?.settle();
    let (mut ours, mut peers, mut cold) = (Vec::new(), Vec::new(), 0);
    let run = run_of("print(1)")?;
    let mut client = place.connect()?;
    let since = Instant::now();
    while ours.len() < REQUESTS && since.elapsed() < REQUESTS_BUDGET {
        let sent = Instant::now();
        let result = place.runtime.block_on(send_print(&mut client, &run))?;
        ours.push(milliseconds(sent.elapsed()));
        cold += usize::from(!result.meta.warm);
        std::thread::sleep(PAUSE / 2);
        peers.push(time(&mut plain)?);
        std::thread::sleep(PAUSE / 2);
    }
    let count = ours.len();
    let (ours, peer) = (Sample::of(ours), Sample::of(peers));
    let note = format!("{count} requests, {cold} of them not from the pool; peer is python3 -I -S");
    let figure = |what, value| Figure::new("engine-request", what, value, Unit::Milliseconds);
    Ok(vec![
        figure("p50", ours.median)
            .with(ours)
            .beside(peer)
            .against(Target::AtMost(0.5)),
        figure("p99", ours.p99).against(Target::AtMost(3.0)).noting(note),
    ])
}

/// The HTTP request of [`http`], over the server's own socket.
const POST: &[u8] = b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n\
    {\"code\":\"print(1)\"}";

/// Most times the time of the socket's own request.
const MAX_RATIO: f64 = 1.3;

/// Measures `POST /v1/run` over a kept connection, beside the socket's own request.
pub(super) fn http(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let run = run_of("print(1)")?;
    place.engine()?.settle();
    let mut client = place.connect()?;
    let socket = place.socket(WORLD);
    let mut stream = place.runtime.block_on(UnixStream::connect(socket))?;
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    let since = Instant::now();
    while ours.len() < REQUESTS && since.elapsed() < REQUESTS_BUDGET {
        let sent = Instant::now();
        place.runtime.block_on(post(&mut stream))?;
        ours.push(milliseconds(sent.elapsed()));
        std::thread::sleep(PAUSE);
        let sent = Instant::now();
        place.runtime.block_on(send_print(&mut client, &run))?;
        peers.push(milliseconds(sent.elapsed()));
        std::thread::sleep(PAUSE);
    }
    let (ours, peer) = (Sample::of(ours), Sample::of(peers));
    let ratio = ours.median / peer.median;
    let p99 = ours.p99;
    let figure = |what, value, unit| Figure::new("http-run", what, value, unit);
    Ok(vec![
        figure("p50", ours.median, Unit::Milliseconds)
            .with(ours)
            .beside(peer)
            .noting("peer is the request over the same socket in frames, which has no audit record"),
        figure("p99", p99, Unit::Milliseconds).against(Target::AtMost(3.0)),
        figure("p50 by the peer's", ratio, Unit::Ratio).against(Target::AtMost(MAX_RATIO)),
    ])
}

/// Sends the request, and reads its answer.
async fn post(stream: &mut UnixStream) -> anyhow::Result<()> {
    stream.write_all(POST).await?;
    let mut answer = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            bail!("the server closed the connection");
        }
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length.context("an answer without a length")?.parse()? {
            continue;
        }
        return match head.starts_with("HTTP/1.1 200") && body.contains(r#""stdout":"1\n""#) {
            true => Ok(()),
            false => bail!("the server answered {text}"),
        };
    }
}

const CLIENTS: usize = 4;
pub(super) const LOAD: Duration = Duration::from_secs(4);
const PEER_LOAD: Duration = Duration::from_secs(2);

pub(super) fn throughput(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let python = place.interpreter(Language::Python)?;
    let engine = place.engine()?.id();
    let before = processor_time(engine)?;
    // Interleaved here too: half the load, the peer, the other half.
    let first = load(place)?;
    let peer = peer_load(place, &python)?;
    let second = load(place)?;
    place.engine()?.settle();
    let runs = (first + second) as f64;
    let each = (processor_time(engine)? - before) / runs;
    let rate = runs / LOAD.as_secs_f64();
    let plain = peer as f64 / PEER_LOAD.as_secs_f64();
    let figure = |what, value, unit| Figure::new("throughput", what, value, unit);
    Ok(vec![
        figure("4 clients at once", rate, Unit::PerSecond)
            .against(Target::AtLeast(450.0))
            .noting(format!("plain python3 -I -S, four at once: {plain:.0} /s")),
        figure("by that of python3", rate / plain, Unit::Ratio).against(Target::AtLeast(2.0)),
        figure("processor time of a run", each, Unit::Milliseconds)
            .against(Target::AtMost(2.0))
            .noting("of the server and all that it started, the bench not included"),
    ])
}

/// Returns the number of runs of four clients at once over the server's socket, in half of [`LOAD`].
pub(super) fn load(place: &mut BenchContext) -> anyhow::Result<usize> {
    let run = run_of("print(1)")?;
    let until = Instant::now() + LOAD / 2;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(place.connect()?);
    }
    place.runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for mut client in clients {
            let run = run.clone();
            tasks.spawn(async move {
                let mut done = 0;
                while Instant::now() < until {
                    send_print(&mut client, &run).await?;
                    done += 1;
                }
                anyhow::Ok(done)
            });
        }
        let mut total = 0;
        while let Some(done) = tasks.join_next().await {
            total += done??;
        }
        Ok(total)
    })
}

fn peer_load(place: &BenchContext, python: &std::path::Path) -> anyhow::Result<usize> {
    let until = Instant::now() + PEER_LOAD;
    let worker = || {
        let mut plain = place.plain(python, &["-I", "-S", "-c", "print(1)"]);
        move || {
            let mut done = 0;
            while Instant::now() < until {
                time(&mut plain)?;
                done += 1;
            }
            anyhow::Ok(done)
        }
    };
    let threads: Vec<_> = (0..CLIENTS).map(|_| std::thread::spawn(worker())).collect();
    let mut total = 0;
    for thread in threads {
        match thread.join() {
            Ok(done) => total += done?,
            Err(_) => bail!("measuring the peer failed"),
        }
    }
    Ok(total)
}

/// A limit far above any warm start, yet short enough to be reached several times.
const LIMIT: &str = "300ms";
const TIMEOUTS: usize = 8;

/// Measures the cleanup after a timeout: the program leaves children that loop too and must be killed.
pub(super) fn timeout(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let before = place.engine()?.settle();
    let limits = Limits {
        timeout: LIMIT.parse()?,
        ..Limits::DEFAULT
    };
    let run = request_within("import os\nos.fork(); os.fork()\nwhile True: pass", limits)?;
    let mut client = place.connect()?;
    let mut overshoots = Vec::new();
    for _ in 0..TIMEOUTS {
        let since = Instant::now();
        let result = place.runtime.block_on(send(&mut client, &run))?;
        if result.meta.outcome != Outcome::TimedOut {
            bail!("a busy loop ended by itself: {}", result.stderr.trim());
        }
        overshoots.push(milliseconds(since.elapsed()) - milliseconds(limits.timeout.as_duration()));
    }
    let worst = overshoots.iter().copied().fold(0.0, f64::max);
    let left = place.engine()?.settle().saturating_sub(before);
    let figure = |what, value, unit| Figure::new("timeout-overshoot", what, value, unit);
    Ok(vec![
        figure("the worst of 8, limit 300ms", worst, Unit::Milliseconds)
            .with(Sample::of(overshoots))
            .against(Target::AtMost(50.0)),
        figure("processes left", left as f64, Unit::Count).against(Target::AtMost(0.0)),
    ])
}
