//! Sessions in a server.

use std::time::{Duration, Instant};

use ringfence_policy::SessionId;
use ringfence_server::wire::SessionAction;

use super::super::context::BenchContext;
use super::super::engine::{request_in, send, send_for_value, sessions};
use super::super::figure::{Figure, Sample, Target};
use super::super::process::milliseconds;

const EVALUATIONS: usize = 300;
const FORKS: usize = 100;

/// Pause between requests, so that each meets an idle server, as with a client that thinks in between.
const PAUSE: Duration = Duration::from_millis(2);

pub(super) fn evaluation(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let session: SessionId = "bench".parse()?;
    place.engine()?.settle();
    let mut client = place.connect()?;
    let (first, run) = (
        request_in(&session, "x = 20")?,
        request_in(&session, "x += 1; x")?,
    );
    let mut samples = Vec::new();
    place.runtime.block_on(send(&mut client, &first))?;
    for number in 0..EVALUATIONS {
        let expected = (21 + number).to_string();
        let since = Instant::now();
        place
            .runtime
            .block_on(send_for_value(&mut client, &run, &expected))?;
        samples.push(milliseconds(since.elapsed()));
        std::thread::sleep(PAUSE);
    }
    let remove = SessionAction::Remove { id: session };
    place.runtime.block_on(sessions(&mut client, remove))?;
    let sample = Sample::of(samples);
    Ok(Figure::times("session-evaluation", sample, Target::AtMost(0.3)))
}

/// Measures the fork of a session that has imported common modules.
pub(super) fn fork(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let (session, copy): (SessionId, SessionId) = ("bench".parse()?, "bench-copy".parse()?);
    place.engine()?.settle();
    let mut client = place.connect()?;
    let first = request_in(&session, "import json, re, dataclasses\nx = list(range(10_000))")?;
    place.runtime.block_on(send(&mut client, &first))?;
    let mut samples = Vec::new();
    for _ in 0..FORKS {
        let fork = SessionAction::Fork {
            from: session.clone(),
            to: copy.clone(),
        };
        let since = Instant::now();
        place.runtime.block_on(sessions(&mut client, fork))?;
        samples.push(milliseconds(since.elapsed()));
        let remove = SessionAction::Remove { id: copy.clone() };
        place.runtime.block_on(sessions(&mut client, remove))?;
        std::thread::sleep(PAUSE);
    }
    let remove = SessionAction::Remove { id: session };
    place.runtime.block_on(sessions(&mut client, remove))?;
    let sample = Sample::of(samples);
    Ok(Figure::times("session-fork", sample, Target::AtMost(4.0)))
}
