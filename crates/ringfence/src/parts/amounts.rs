//! Range checks of counts and sizes.

use std::fmt::Display;
use std::ops::RangeInclusive;

use ringfence_policy::Bytes;

use super::checks::{Checks, Wrong};

pub(super) fn check(checks: &mut Checks<'_>) {
    let config = checks.config();
    let engine = &config.engine;
    for (key, count, range) in [
        ("engine.pool_size", engine.pool_size, 0..=1024),
        ("engine.container_pool_size", engine.container_pool_size, 0..=256),
        ("engine.max_concurrent", engine.max_concurrent, 1..=4096),
        ("engine.queue", engine.queue, 0..=65_536),
        ("engine.rotate_after_runs", engine.rotate_after_runs, 1..=u32::MAX),
        // One year.
        (
            "engine.rotate_after_minutes",
            engine.rotate_after_minutes,
            1..=525_600,
        ),
        ("engine.max_sessions", engine.max_sessions, 0..=4096),
        ("audit.max_files", config.audit.max_files, 2..=500),
        ("artifacts.keep_days", config.artifacts.keep_days, 0..=36_500),
        (
            "skills.sandbox.pool_size",
            config.skills.sandbox.pool_size,
            0..=256,
        ),
        // As for all other programs.
        (
            "skills.sandbox.memory_limit_mb",
            config.skills.sandbox.memory_limit_mb,
            4..=67_108_864,
        ),
    ] {
        within(checks, key, count, range);
    }
    within(
        checks,
        "audit.max_file",
        config.audit.max_file,
        Bytes::kib(1)..=Bytes::mib(1 << 20),
    );
}

fn within<T: PartialOrd + Display>(checks: &mut Checks<'_>, key: &str, found: T, range: RangeInclusive<T>) {
    if range.contains(&found) {
        return;
    }
    let (least, most) = range.into_inner();
    checks.wrong(Wrong::new(
        key,
        format!("expected {least} to {most}, found {found}"),
        "choose a value of that range, or leave the key out for the default",
    ));
}
