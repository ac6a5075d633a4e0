//! Fuzzes everything that parses bytes from a guest or another untrusted source.
//!
//! A plain program with its own mutation loop, so that stable Rust without network access suffices. A build with coverage
//! counters (`cargo xtask fuzz`) keeps inputs that reach new code. A target takes bytes and panics on a finding.
#![forbid(unsafe_code)]

mod coverage;
mod mutate;
mod output;
mod tar_archives;
mod targets;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coverage::Coverage;
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
    let mut coverage = Coverage::find();
    let chosen = |target: &&Target| arguments.target.as_ref().is_none_or(|name| name == target.name);
    let mut failed = false;
    for target in TARGETS.iter().filter(chosen) {
        failed |= match &arguments.replay {
            Some(file) => !replay(target, file),
            None => !fuzz(target, &arguments, coverage.as_mut()),
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
fn fuzz(target: &Target, arguments: &Arguments, mut coverage: Option<&mut Coverage>) -> bool {
    println!("{:<20} --seed {}", target.name, arguments.seed);
    let (started, time) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let mut mutator = Mutator::new(target.seeds, arguments.seed);
    if let Some(coverage) = &mut coverage {
        coverage.clear();
    }
    let mut runs = 0_u64;
    while started.elapsed() < time {
        let input = mutator.next_input();
        runs += 1;
        // Without the counters, all inputs are as good.
        let is_counted = coverage.as_mut().is_some_and(|coverage| coverage.start().is_ok());
        if catch_unwind(|| (target.run)(&input)).is_err() {
            let kept = keep(target, &input);
            eprintln!(
                "{}: run {runs} broke it; replay with --target {} --replay {kept}",
                target.name, target.name
            );
            return false;
        }
        if is_counted
            && coverage
                .as_mut()
                .is_some_and(|coverage| coverage.is_new().unwrap_or(false))
        {
            mutator.keep(input);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let reached = coverage.map_or(String::new(), |coverage| {
        format!(
            ", {} places reached, {} inputs kept",
            coverage.reached(),
            mutator.kept()
        )
    });
    println!("{:<20} {runs:>10} runs, {seconds:.0} s{reached}", target.name);
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
