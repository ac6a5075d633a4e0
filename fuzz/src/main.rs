//! Fuzzes everything that parses bytes from a guest or another untrusted source.
//!
//! A plain program with its own mutation loop, so that stable Rust without network access suffices. It has no
//! coverage feedback; the seeds make up for it. A target takes bytes and panics on a finding.
#![forbid(unsafe_code)]

mod mutate;
mod targets;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mutate::Mutator;
use targets::{TARGETS, Target};

const USAGE: &str = "usage: ringfence-fuzz [--seconds N] [--target NAME] [--seed N] [--replay FILE]";

struct Arguments {
    seconds: u64,
    target: Option<String>,
    seed: u64,
    replay: Option<String>,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let chosen = |target: &&Target| arguments.target.as_ref().is_none_or(|name| name == target.name);
    let mut failed = false;
    for target in TARGETS.iter().filter(chosen) {
        failed |= match &arguments.replay {
            Some(file) => !replay(target, file),
            None => !fuzz(target, Duration::from_secs(arguments.seconds), arguments.seed),
        };
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments {
        seconds: 20,
        target: None,
        seed: clock(),
        replay: None,
    };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--seconds" => arguments.seconds = value.parse().ok()?,
            "--target" => arguments.target = Some(value),
            "--seed" => arguments.seed = value.parse().ok()?,
            "--replay" => arguments.replay = Some(value),
            _ => return None,
        }
    }
    Some(arguments)
}

/// Returns a seed that differs on each run.
fn clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() << 20 | u64::from(now.subsec_micros())
}

/// Runs one target until its time is up or it finds an input, which is saved to a file. A crash of the whole
/// process, such as a stack overflow, can be reproduced from the seed, which is printed first.
fn fuzz(target: &Target, time: Duration, seed: u64) -> bool {
    println!("{:<20} --seed {seed}", target.name);
    let started = Instant::now();
    let mut mutator = Mutator::new(target.seeds, seed);
    let mut runs = 0_u64;
    while started.elapsed() < time {
        let input = mutator.next_input();
        runs += 1;
        if catch_unwind(|| (target.run)(&input)).is_err() {
            let kept = keep(target, &input);
            eprintln!(
                "{}: run {runs} broke it; replay with --target {} --replay {kept}",
                target.name, target.name
            );
            return false;
        }
    }
    println!(
        "{:<20} {runs:>10} runs, {:.0} s",
        target.name,
        started.elapsed().as_secs_f64()
    );
    true
}

fn keep(target: &Target, input: &[u8]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts");
    let file = folder.join(format!("{}.bin", target.name));
    match fs::create_dir_all(&folder).and_then(|()| fs::write(&file, input)) {
        Ok(()) => file.display().to_string(),
        Err(error) => format!("(not kept: {error}) {input:?}"),
    }
}

fn replay(target: &Target, file: &str) -> bool {
    match fs::read(file) {
        Ok(input) => catch_unwind(|| (target.run)(&input)).is_ok(),
        Err(error) => {
            eprintln!("{file}: {error}");
            false
        }
    }
}
