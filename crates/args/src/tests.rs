//! Tests of the command line: what it takes, and what it refuses.

use super::*;
use clap::CommandFactory;

fn run(args: &[&str]) -> Result<RunArgs, clap::Error> {
    let cli = Cli::try_parse_from(["ringfence", "run"].iter().chain(args))?;
    let Command::Run(args) = cli.command else {
        panic!("`run` is parsed as {:?}", cli.command);
    };
    Ok(*args)
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn the_choice_of_colours_is_found_in_a_line_that_is_wrong() {
    for (line, expected) in [
        ("ringfence --color never run --bogus", ColorChoice::Never),
        ("ringfence run --bogus --color=always", ColorChoice::Always),
        ("ringfence run --bogus", ColorChoice::Auto),
        ("ringfence --color sometimes run", ColorChoice::Auto),
        ("ringfence run -- --color always", ColorChoice::Auto),
        ("ringfence run --color", ColorChoice::Auto),
    ] {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(ColorChoice::of(&words), expected, "{line}");
    }
}

#[test]
fn a_frequent_command_is_parsed_like_the_others() {
    let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
    for line in [
        "ringfence run a.py",
        "ringfence run --config x.toml -c print(1) --memory 64MiB -- --config y",
        "ringfence run - -l bash --color never --json --env A=1 --env B=2",
        "ringfence tool --list --json",
        "ringfence tool run_code {} --workspace . --config x",
    ] {
        let all = Cli::try_parse_from(words(line)).unwrap();
        let frequent = Cli::from(Frequent::try_parse_from(words(line)).unwrap());
        assert_eq!(format!("{frequent:?}"), format!("{all:?}"), "{line}");
    }
    for line in [
        "ringfence run --no-such",
        "ringfence run --help",
        "ringfence tool -x",
        "ringfence tool --help",
    ] {
        let all = Cli::try_parse_from(words(line)).unwrap_err().to_string();
        assert_eq!(Cli::parsed(&words(line)).unwrap_err().to_string(), all, "{line}");
    }
}

#[test]
fn every_option_of_run_is_understood() {
    let args = run(&[
        "x.py",
        "-l",
        "bash",
        "-r",
        "local",
        "--timeout",
        "5s",
        "--max-output",
        "1KiB",
        "--memory",
        "256m",
        "--cpus",
        "0.5",
        "--pids",
        "7",
        "--network",
        "none",
        "--allow-host",
        "a",
        "--mount",
        "./d:/d:rw",
        "--env",
        "A=b=c",
        "--stdin",
        "-",
        "-o",
        "out",
        "--user",
        "ann",
        "--isolation",
        "best-effort",
        "--python",
        "p",
        "--no-engine",
        "--json",
        "--",
        "-x",
        "y",
    ])
    .unwrap();
    assert_eq!(args.args, ["-x", "y"]);
    assert_eq!((args.env[0].0.as_str(), args.env[0].1.as_str()), ("A", "b=c"));
    assert_eq!(args.memory, Some(Bytes::mib(256)));
}

#[test]
fn bad_values_are_usage_errors_with_the_units_own_words() {
    for (args, words) in [
        (&["--timeout", "0"][..], "between 1ms and 24h"),
        (&["--timeout", "1000000000"], "between 1ms and 24h"),
        (&["--memory", "lots"], "write it like"),
        (&["--env", "NAME"], "expected `NAME=value`, found no `=`"),
        (&["--env", "=x"], "NAME=value"),
        (&["--env", "1X=2"], "does not begin with a digit"),
        (&["--mount", "nowhere"], "is not a mount"),
        (&["-l", "cobol"], "known are python"),
        (&["-c", "1", "x.py"], "cannot be used with"),
        (&["--unfenced", "--isolation", "required"], "cannot be used with"),
    ] {
        let error = run(args).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{args:?}");
        assert!(error.to_string().contains(words), "{args:?}: {error}");
    }
}
