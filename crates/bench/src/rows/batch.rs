//! A batch of programs over HTTP.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ringfence_client::{Body, Client};
use serde_json::{Value, json};

use super::super::context::BenchContext;
use super::super::engine::WORLD;
use super::super::figure::{Figure, Target, Unit};
use super::super::process::memory;
use super::engine::{LOAD, load};

const NAME: &str = "batch";
const PROGRAMS: usize = 10_000;

/// Least part of the throughput that the socket's own requests have.
const LEAST: f64 = 0.95;
/// Most that the server's memory grows meanwhile, in MiB: what a batch of any length holds in flight, and what allocators keep.
const MOST_GROWTH: f64 = 16.0;
/// Results from one look at the server's memory to the next.
const STRIDE: usize = 500;

/// Results of a batch, all of them right.
struct Finished {
    time: Duration,
    /// Largest resident set of the server between results, in MiB.
    largest: f64,
}

pub(super) fn batch(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    place.engine()?.settle();
    let server = place.engine()?.id();
    // Interleaved: half the load of the peer, the batch, the other half.
    let first = load(place)?;
    let before = memory(server, "status", "VmRSS")?;
    let client = Client::new(&place.socket(WORLD));
    let finished = place.runtime.block_on(send(&client, server))?;
    let after = memory(server, "status", "VmRSS")?;
    let second = load(place)?;
    let rate = PROGRAMS as f64 / finished.time.as_secs_f64();
    let peer = (first + second) as f64 / LOAD.as_secs_f64();
    let figure = |what, value, unit| Figure::new(NAME, what, value, unit);
    Ok(vec![
        figure("10,000 print(i), one request", rate, Unit::PerSecond).noting(format!(
            "four clients at once over the server's socket: {peer:.0} /s"
        )),
        figure("by that of the socket", rate / peer, Unit::Ratio).against(Target::AtLeast(LEAST)),
        figure("growth of the server", finished.largest - before, Unit::Mebibytes)
            .against(Target::AtMost(MOST_GROWTH))
            .noting(format!(
                "RSS before {before:.1}, largest between results {:.1}, after {after:.1} MiB",
                finished.largest
            )),
    ])
}

/// Sends the batch, and checks each result on arrival.
async fn send(client: &Client, server: u32) -> anyhow::Result<Finished> {
    let runs: Vec<Value> = (0..PROGRAMS)
        .map(|number| json!({"code": format!("print({number})")}))
        .collect();
    let body = Body::Json(json!({ "runs": runs }));
    let since = Instant::now();
    let sent = client.send("POST".parse()?, "/v1/batch", body, None).await;
    let mut response = sent.context("sending a batch")?;
    let (mut lines, mut is_done) = (Vec::new(), vec![false; PROGRAMS]);
    let (mut count, mut largest) = (0, 0.0_f64);
    while let Some(piece) = response.piece().await? {
        lines.extend_from_slice(&piece);
        let end = lines
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let whole: Vec<u8> = lines.drain(..end).collect();
        for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            check(line, &mut is_done)?;
            count += 1;
            if count % STRIDE == 0 {
                largest = largest.max(memory(server, "status", "VmRSS")?);
            }
        }
    }
    let time = since.elapsed();
    ensure!(count == PROGRAMS, "a batch of {PROGRAMS} gave {count} results");
    Ok(Finished { time, largest })
}

fn check(line: &[u8], is_done: &mut [bool]) -> anyhow::Result<()> {
    let answer: Value = serde_json::from_slice(line)?;
    let index = answer["index"].as_u64().context("a result without an index")?;
    let done = is_done.get_mut(usize::try_from(index)?);
    let done = done.with_context(|| format!("there is no program {index}"))?;
    ensure!(!*done, "the program {index} has two results");
    *done = true;
    let printed = answer["result"]["stdout"].as_str();
    ensure!(
        printed == Some(&format!("{index}\n")),
        "the program {index} gave {answer}"
    );
    Ok(())
}
