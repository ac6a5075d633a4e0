//! The name of this process, which tells whether what it left behind has lost its owner.

/// The name under which this process leaves things that outlive it if it is killed: `ringfence-<pid>-<start>`.
/// The start time tells it from a later process with the same id.
pub(crate) fn owner_name() -> String {
    let pid = std::process::id();
    format!("ringfence-{pid}-{}", start_time(pid).unwrap_or(0))
}

/// Whether the process that used such a name, given without its prefix, has gone.
pub(crate) fn owner_is_dead(owner: &str) -> bool {
    let Some((pid, start)) = owner.split_once('-') else {
        return false;
    };
    let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else {
        return false;
    };
    start_time(pid) != Some(start)
}

/// When a process started, in clock ticks since boot (proc_pid_stat(5), field 22).
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold spaces and parentheses; it ends at the last one.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
