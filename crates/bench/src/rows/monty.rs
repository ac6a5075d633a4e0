//! Warm runs and evaluations interleaved with those of Monty.

use std::time::{Duration, Instant};

use ringfence_policy::SessionId;
use ringfence_server::wire::SessionAction;

use super::super::context::BenchContext;
use super::super::engine::{request, request_in, send, send_for_value, send_print, sessions};
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::monty::Monty;
use super::super::process::milliseconds;

const NAME: &str = "monty";
const PACED: usize = 300;
const BACK_TO_BACK: usize = 1000;

/// Pause before each request, so that it meets an idle server.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) fn beside(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let mut monty = match Monty::start(place) {
        Ok(monty) => monty,
        Err(error) => return Ok(vec![Figure::unmeasured(NAME, format!("{error:#}"))]),
    };
    let mut figures = vec![paced(place, &mut monty)?];
    figures.extend(back_to_back(place, &mut monty)?);
    figures.push(evaluations(place, &mut monty)?);
    Ok(figures)
}

/// Compares a run of an idle server with a check-out and run of Monty, one after the other.
fn paced(place: &mut BenchContext, monty: &mut Monty) -> anyhow::Result<Figure> {
    place.engine()?.settle();
    let run = request("print(1)")?;
    let mut client = place.connect()?;
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..PACED {
        std::thread::sleep(PAUSE);
        let sent = Instant::now();
        place.runtime.block_on(send_print(&mut client, &run))?;
        ours.push(milliseconds(sent.elapsed()));
        std::thread::sleep(PAUSE);
        peers.push(monty.run()?);
    }
    let (ours, peers) = (Sample::of(ours), Sample::of(peers));
    let figure = Figure::ratio(NAME, "request to result / check-out, run", ours, peers);
    Ok(figure.against(Target::AtMost(2.0)))
}

/// Compares runs of one client without pauses.
fn back_to_back(place: &mut BenchContext, monty: &mut Monty) -> anyhow::Result<[Figure; 2]> {
    place.engine()?.settle();
    let run = request("print(1)")?;
    let mut client = place.connect()?;
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..BACK_TO_BACK {
        let sent = Instant::now();
        place.runtime.block_on(send_print(&mut client, &run))?;
        ours.push(milliseconds(sent.elapsed()));
    }
    for _ in 0..BACK_TO_BACK {
        peers.push(monty.run()?);
    }
    let (ours, peers) = (Sample::of(ours), Sample::of(peers));
    let p99 = ours.p99 / peers.p99;
    Ok([
        Figure::ratio(NAME, "1,000 back to back", ours, peers).against(Target::AtMost(4.0)),
        Figure::new(NAME, "their p99", p99, Unit::Ratio).against(Target::AtMost(10.0)),
    ])
}

/// Compares evaluations in a session, one after the other.
fn evaluations(place: &mut BenchContext, monty: &mut Monty) -> anyhow::Result<Figure> {
    let session: SessionId = "bench-monty".parse()?;
    let mut client = place.connect()?;
    let (first, run) = (
        request_in(&session, "x = 20")?,
        request_in(&session, "x += 1; x")?,
    );
    place.runtime.block_on(send(&mut client, &first))?;
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for number in 0..PACED {
        std::thread::sleep(PAUSE);
        let expected = (21 + number).to_string();
        let sent = Instant::now();
        place
            .runtime
            .block_on(send_for_value(&mut client, &run, &expected))?;
        ours.push(milliseconds(sent.elapsed()));
        std::thread::sleep(PAUSE);
        peers.push(monty.evaluate()?);
    }
    let remove = SessionAction::Remove { id: session };
    place.runtime.block_on(sessions(&mut client, remove))?;
    let (ours, peers) = (Sample::of(ours), Sample::of(peers));
    Ok(Figure::ratio(NAME, "evaluation in a session", ours, peers).against(Target::AtMost(1.2)))
}
