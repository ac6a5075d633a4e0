//! Provides the embedding programs, written as users might do it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::Arc;

use ringfence_exec::local::{
    self, Connection, Fence, InterpreterCache, Local, Log, SessionSettings, Settings, Warmth,
};
use ringfence_network::egress::{NetworkSettings, Resolver};
use ringfence_network::fetch::Trust;
use ringfence_policy::{Language, Limits, Request, Timeout};

/// Limit of starts. A broken guard must fail a test, and not fork without end.
const TOO_MANY: usize = 20;

/// Selects the program by the name of this executable.
pub(crate) fn by_name() -> Option<fn()> {
    let executable = std::env::current_exe().unwrap();
    Some(match executable.file_name()?.to_str()? {
        "always" => always,
        "never" => never,
        "sometimes" => sometimes,
        "late" => late,
        "threaded" => threaded,
        "waiting" => waiting,
        _ => return None,
    })
}

fn always() {
    local::init();
    begin();
    run_code();
}

fn never() {
    begin();
    run_code();
}

/// Calls the hook only without arguments, as a program might that treats every argument as a file name.
fn sometimes() {
    if std::env::args().count() == 1 {
        local::init();
    }
    begin();
    run_code();
}

fn late() {
    begin();
    run_code();
    local::init();
}

fn threaded() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || stopped.recv());
    local::init();
    begin();
    run_code();
    drop(stop);
    let _ = other.join().unwrap();
}

/// A server whose child, meant as a launcher, starts as the same server again. It detaches standard input, as
/// daemons do, and never exits.
fn waiting() {
    begin();
    if std::env::args().count() == 1 {
        local::init();
        return run_code();
    }
    eprintln!("waiting as {}", std::process::id());
    let mut sleep = std::process::Command::new("sleep");
    let error = sleep.arg("86400").stdin(std::process::Stdio::null()).exec();
    panic!("{error}");
}

/// Records the start in the working directory.
fn begin() {
    let mut options = std::fs::OpenOptions::new();
    let mut starts = options.create(true).append(true).open("starts").unwrap();
    writeln!(starts, "{}", std::process::id()).unwrap();
    let count = std::fs::read_to_string("starts").unwrap().lines().count();
    assert!(count < TOO_MANY, "began {count} times");
}

/// Runs a line of bash, and prints the result.
fn run_code() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let outcome = runtime.block_on(async {
        let local = Local::new(settings());
        let result = local
            .run(&request(), Fence::BestEffort, None, Connection::none())
            .await;
        local.close().await;
        result
    });
    match outcome {
        Ok(result) => println!("ran: {}", result.stdout),
        Err(error) => println!("{}\n{}", error.explain(), error.hint().person()),
    }
}

fn request() -> Request {
    Request::new(Language::Bash, "echo hello")
}

fn settings() -> Settings {
    Settings {
        python: None,
        javascript: None,
        preload: Vec::new(),
        preload_timeout: Timeout::seconds(60),
        log: Log::default(),
        path: std::env::var_os("PATH"),
        cache: None,
        private: Vec::new(),
        protected: Vec::new(),
        scratch: PathBuf::from("/tmp"),
        warmth: Warmth::Cold,
        limits: Limits::DEFAULT,
        interpreters: InterpreterCache::default(),
        max_concurrent: 1,
        max_queued: 1,
        sessions: SessionSettings {
            max: 1,
            idle: Timeout::seconds(60),
            lifetime: Timeout::seconds(60),
        },
        network: NetworkSettings {
            resolver: Resolver::system(),
            trust: Arc::new(Trust::new(None)),
            injections: Vec::new(),
        },
    }
}
