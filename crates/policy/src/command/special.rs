//! Handlers for commands whose arguments need more than the table.

use super::analysis::{Analysis, Forced, INPUT, Reach};
use super::effect::Effect;
use super::judge;
use super::options::{self, Scanned};
use super::table::{self, Entry};
use super::{
    awk, cloud, fetch, files, git, jq, kubernetes, modes, nested, operands, processes, secrets, sed, sql,
    test,
};
use crate::shell::{self, Piece, Word};

/// Dispatches to the entry's handler; an unlisted name counts as unknown.
pub(super) fn handle(handler: &str, args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    match handler {
        "awk" => awk::check(args, scanned, analysis),
        "jq" => jq::jq(args, scanned, analysis),
        "yq" => jq::yq(args, scanned, analysis),
        "sed" => sed::check(args, scanned, analysis),
        "sql" => sql::check(args, title, scanned, analysis),
        "env" => env(args, scanned, analysis),
        "xargs" => xargs(args, scanned, analysis),
        "shell" => shell(args, title, scanned, analysis),
        "grep" => grep(args, title, scanned, analysis),
        "diff" => operands::diff(scanned, title, analysis),
        "package" => operands::packages(args, scanned, title, analysis),
        "rm" => files::rm(args, title, scanned, analysis),
        "dd" => dd(args, analysis),
        "tar" => tar(args, title, scanned, analysis),
        "sysctl" => assigning(args, title, analysis),
        "date" => date(args, scanned, analysis),
        "plus" => git::push(args, scanned, title, analysis),
        "list" => git::list(scanned, title, analysis),
        "checkout" => git::checkout(args, scanned, title, analysis),
        "git-config" => git::config(args, scanned, title, analysis),
        "noun" => cloud::gcloud(args, title, analysis),
        "aws" => cloud::aws(args, title, analysis),
        "kubectl" => kubernetes::check(args, title, scanned, analysis),
        "named" => cloud::named(args, scanned, title, analysis),
        "plain" => operands::plain(args, title, analysis),
        "yamllint" => operands::yamllint(scanned, title, analysis),
        "git-tree" => git::tree(args, title, scanned, analysis),
        "api" => cloud::gh_api(args, scanned, title, analysis),
        "curl" => fetch::curl(args, scanned, analysis),
        "interface" => interface(args, scanned, analysis),
        "ps" => processes::ps(args, title, analysis),
        "fzf" => fzf(scanned, analysis),
        "no-scheme" => no_scheme(args, scanned, title, analysis),
        "no-address" => no_address(args, title, analysis),
        "dry-run" => dry_run(scanned, title, analysis),
        "remote-name" => git::remote_name(args, scanned, title, analysis),
        "sensitive" => cloud::sensitive(args, title, analysis),
        "ip" => cloud::ip(args, title, analysis),
        "needs" => modes::needs(args, scanned, title, analysis),
        "printf" => operands::printf(args, scanned, analysis),
        "response" => operands::response(args, title, analysis),
        "rustc" => modes::rustc(scanned, analysis),
        "query" => modes::query(args, title, analysis),
        "bat" => operands::bat(args, scanned, analysis),
        "ss" => operands::sockets(args, scanned, analysis),
        "lsof" => operands::open_files(args, analysis),
        "read" => operands::read(args, scanned, analysis),
        "test" => test::check(args, title, analysis),
        "place" => files::place(args, scanned, title, analysis),
        "mode" => files::mode(args, scanned, title, analysis),
        "rsync" => files::rsync(args, scanned, title, analysis),
        "manual" => files::manual(args, scanned, title, analysis),
        "stdout" => files::standard_output(args, scanned, title, analysis),
        "helper" => git::helper(args, scanned, title, analysis),
        "gh" => cloud::gh(args, scanned, title, analysis),
        "ip-monitor" => cloud::ip_monitor(args, scanned, analysis),
        "wget" => fetch::wget(args, scanned, analysis),
        "top" => processes::top(args, scanned, title, analysis),
        "properties" => processes::properties(scanned, title, analysis),
        "service" => processes::service(args, scanned, analysis),
        "containers" => processes::containers(scanned, title, analysis),
        "inspect" => processes::inspect(scanned, title, analysis),
        "compose-config" => processes::compose_config(scanned, title, analysis),
        "journal" => processes::journal(scanned, title, analysis),
        "script" => operands::script(args, title, scanned, analysis),
        "crontab" => processes::crontab(scanned, analysis),
        "command" => command(args, scanned, analysis),
        _ => unlisted(title, analysis),
    }
}

fn unlisted(title: &str, analysis: &mut Analysis) {
    analysis.add(
        Effect::Unknown,
        format!("{title}: nothing is known of its arguments"),
    );
}

fn text(args: &[Word], index: usize) -> Option<String> {
    args.get(index).and_then(Word::literal)
}

/// Judges `env`: variables, then a command.
fn env(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    analysis.wraps = true;
    let Some(first) = scanned.operands.first() else {
        return;
    };
    for (index, word) in args.iter().enumerate().skip(*first) {
        match word.text.split_once('=') {
            Some((name, value)) if nested::is_harmless(name, value) && word.literal().is_some() => {}
            Some((name, _)) => nested::variable(name, analysis),
            None => return analysis.inner(&args[index..]),
        }
    }
}

/// Judges `xargs`: a command whose last arguments are unknown.
fn xargs(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    analysis.wraps = true;
    let Some(first) = scanned.operands.first() else {
        return analysis.add(
            Effect::Unknown,
            "xargs: without a command it prints what it reads",
        );
    };
    let mut words = args[*first..].to_vec();
    let replaces = ["-I", "-J", "-i", "--replace"];
    let replaces = scanned.has_any(&replaces);
    if !replaces {
        end_options(&mut words, analysis);
    }
    let fed_word = |end| Word {
        pieces: vec![Piece::Glob('*')],
        text: INPUT.to_owned(),
        end,
    };
    let tokens = scanned
        .values
        .iter()
        .filter(|(name, _)| matches!(*name, "-I" | "-J" | "-i" | "--replace"));
    for (_, token) in tokens {
        match token.as_deref() {
            // Without a value it is `{}`, which is known everywhere.
            Some("" | "{}") => {}
            Some(token) => {
                for word in words.iter_mut().filter(|word| word.text.contains(token)) {
                    *word = fed_word(word.end);
                }
            }
            None => analysis.add(
                Effect::Unknown,
                "xargs: the text that it replaces is not known beforehand",
            ),
        }
    }
    words.push(fed_word(None));
    if !scanned
        .options
        .iter()
        .any(|option| matches!(*option, "-0" | "--null"))
    {
        // A name that contains a blank is split in two.
        analysis.sources_only = false;
    }
    let outer = std::mem::replace(&mut analysis.templated, true);
    let fed = std::mem::replace(&mut analysis.feeds, true);
    analysis.inner(&words);
    (analysis.templated, analysis.feeds) = (outer, fed);
}

/// Appends `--` to a command, so that no name fed to it can be an option.
fn end_options(words: &mut Vec<Word>, analysis: &mut Analysis) {
    let program = words.first().and_then(Word::literal).unwrap_or_default();
    let entry = table::root(program.rsplit('/').next().unwrap_or_default());
    let harmless = |entry: &Entry| {
        entry.any.is_some() && entry.options.iter().all(|option| option.effect.is_read_only())
    };
    let plain =
        entry.is_some_and(|entry| !entry.sub && !entry.single && entry.wraps.is_none() && !harmless(entry));
    let ended = entry.is_some_and(|entry| {
        let mut aside = Analysis::new(judge::judge);
        let scanned = options::scan(entry, &words[1..], &program, &mut aside);
        scanned.delimiter.is_some()
    });
    let Some(at) = words
        .last()
        .and_then(|word| word.end)
        .filter(|_| plain && !ended && !analysis.quoted)
    else {
        return;
    };
    analysis.forced.push(Forced {
        at,
        words: "--".to_owned(),
    });
    words.push(Word {
        pieces: vec![Piece::Literal("--".to_owned())],
        text: "--".to_owned(),
        end: None,
    });
}

/// Judges the script of `bash -c 'script'`; anything else that a shell may run is rejected.
fn shell(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    analysis.wraps = true;
    // `-n` parses the script without running it.
    let only_reads = |option: &&str| matches!(*option, "-n" | "-v" | "-x" | "-u" | "-e");
    if scanned.options.contains(&"-n") {
        match scanned.options.iter().all(only_reads) && scanned.operands.len() == 1 {
            true => return,
            false => return analysis.add(Effect::Code, format!("{title}: runs code that is not seen")),
        }
    }
    let script = scanned
        .options
        .contains(&"-c")
        .then(|| scanned.operands.first().and_then(|first| text(args, *first)));
    let Some(Some(script)) = script else {
        return analysis.add(Effect::Code, format!("{title}: runs code that is not seen"));
    };
    if analysis.templated {
        analysis.add(
            Effect::Code,
            format!("{title}: text that is not known becomes code"),
        );
    }
    // Other shells than bash interpret these differently.
    let differs = ["$'", "$\"", "&>", "<(", ">(", "<<<", "|&", "[["];
    if title != "bash" && differs.iter().any(|sign| script.contains(sign)) {
        return analysis.add(
            Effect::Code,
            format!("{title}: a script for bash is run by another shell"),
        );
    }
    match shell::parse(&script) {
        Ok(parsed) if parsed.nodes.is_empty() || !parsed.here.is_empty() => {
            analysis.add(Effect::Code, format!("{title}: the script is not judged"));
        }
        Ok(parsed) => {
            analysis.depth += 1;
            let outer = std::mem::replace(&mut analysis.quoted, true);
            match analysis.depth > 4 {
                true => analysis.add(Effect::Code, "shells within shells"),
                false => nested::nodes(&parsed.nodes, analysis),
            }
            analysis.quoted = outer;
            analysis.depth -= 1;
        }
        Err(unclear) => analysis.add(Effect::Code, format!("{title}: {unclear}")),
    }
}

/// Judges `grep`: searching whole trees finds secrets, too.
fn grep(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    let recursive = ["-r", "-R", "--recursive", "--dereference-recursive"];
    let deep = scanned.has_any(&recursive)
        || scanned
            .values
            .iter()
            .any(|(name, value)| matches!(*name, "-d" | "--directories") && value.as_deref() != Some("skip"));
    for (name, value) in &scanned.values {
        let filters = matches!(*name, "-g" | "--glob" | "--iglob" | "--include");
        if filters
            && value
                .as_deref()
                .is_some_and(|pattern| secrets::names_secret(pattern, true))
        {
            analysis.add(Effect::Secret, format!("{title} {name}: may name a secret"));
        }
    }
    if title.starts_with(['z', 'x']) {
        operands::script(args, title, scanned, analysis);
    }
    if deep || matches!(title, "rg" | "ag") {
        secrets::broad(args, title, scanned, analysis);
    }
}

/// Judges `dd`: it is harmless only if it writes to standard output. An unknown word could be `of=`.
fn dd(args: &[Word], analysis: &mut Analysis) {
    for word in args {
        match word.literal() {
            Some(text) if text.starts_with("of=/dev/") => {
                analysis.add(Effect::Ruin, "dd: overwrites a device")
            }
            Some(text) if text.starts_with("of=") => analysis.add(Effect::Destroy, "dd: overwrites a file"),
            Some(text) if !text.contains("{}") => {}
            _ => analysis.add(
                Effect::Unknown,
                format!("dd: `{}` may become the name of what is overwritten", word.text),
            ),
        }
    }
}

/// Judges `tar`, in any notation of its first word: to list is harmless. The names that it unpacks stand in the
/// archive, and what lies there may be run or obeyed.
fn tar(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    let words: Vec<String> = args.iter().filter_map(Word::literal).collect();
    let bundles = words.iter().filter(|word| !word.starts_with("--"));
    let mut modes: String = bundles.filter_map(|word| word.strip_prefix('-')).collect();
    let mut archives: Vec<Option<String>> = Vec::new();
    // The old notation, without a minus: the arguments of its letters are the next words.
    if let Some(first) = words.first().filter(|word| !word.starts_with('-')) {
        modes.push_str(first);
        if !first.chars().all(|letter| "tcxruvfjzJaOpk".contains(letter)) {
            analysis.insist(
                Effect::Code,
                format!("{title}: a letter of `{first}` may have a program run"),
            );
        }
        if first.contains('f') {
            archives.push(args.get(1).and_then(Word::shape));
        }
    }
    if modes.contains('x') || scanned.has_any(&["--extract", "--get"]) {
        analysis.insist(Effect::Code, format!("{title}: {UNPACKS}"));
    }
    let lists = modes.contains('t') || scanned.has_any(&["--list"]);
    if !lists || modes.contains(['c', 'x', 'r', 'u', 'A']) {
        analysis.add(
            Effect::Write,
            format!("{title}: makes, changes or unpacks an archive"),
        );
        let files = scanned
            .values
            .iter()
            .filter(|(name, _)| matches!(*name, "-f" | "--file"));
        archives.extend(files.map(|(_, value)| value.clone()));
        for archive in &archives {
            files::destination(archive.as_deref(), title, analysis);
        }
        let packed = scanned.operands.iter().filter_map(|index| args[*index].shape());
        secrets::trees(packed.collect(), Reach::Tree, analysis);
        secrets::broad_places(args, title, scanned, analysis);
    }
    let names = |word: &Word| word.text.contains(':') || word.is_glob();
    if args.iter().any(names) {
        analysis.add(Effect::Network, format!("{title}: an archive on another machine"));
    }
}

/// Reason against unpacking: whoever made the archive chose the names.
const UNPACKS: &str = "unpacks files with names that are run or obeyed, if the archive has them";

fn assigning(args: &[Word], title: &str, analysis: &mut Analysis) {
    if args.iter().any(|word| word.text.contains('=') || word.is_glob()) {
        analysis.add(Effect::Privilege, format!("{title}: sets a value of the kernel"));
    }
}

/// Judges `date`: any operand but a format sets the clock.
fn date(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    for index in &scanned.operands {
        if !text(args, *index).is_some_and(|text| text.starts_with('+')) {
            analysis.add(Effect::Privilege, "date: sets the clock");
        }
    }
}

/// Adds a change unless it is a dry run; the option's value could turn that off.
fn dry_run(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let valued = scanned.values.iter().any(|(name, value)| {
        *name == "--dry-run" && !matches!(value.as_deref(), Some("client" | "server" | "true" | ""))
    });
    if valued || !scanned.options.contains(&"--dry-run") {
        analysis.add(Effect::Write, format!("{title}: changes what runs"));
    }
}

/// Judges `fzf --bind`: only keys that move, none that run programs.
fn fzf(scanned: &Scanned, analysis: &mut Analysis) {
    let runs = [
        "execute",
        "become",
        "reload",
        "transform",
        "preview",
        "search",
        "put",
        "print",
    ];
    for (name, value) in &scanned.values {
        let plain = |text: &str| {
            let simple =
                |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || "-+:,".contains(sign);
            text.chars().all(simple) && !runs.iter().any(|action| text.contains(action))
        };
        if *name == "--bind" && !value.as_deref().is_some_and(plain) {
            analysis.add(Effect::Code, "fzf --bind: a key may run a command");
        }
    }
}

/// Judges `ifconfig`: one name shows that interface. `up` or `down`, and operands after `-a`, change the
/// network.
fn interface(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    let verb = |index: &usize| matches!(args[*index].text.as_str(), "up" | "down");
    if !scanned.operands.is_empty() && scanned.options.contains(&"-a") || scanned.operands.iter().any(verb) {
        analysis.add(Effect::Privilege, "ifconfig: changes the network");
    }
}

/// Accepts files only: programs open `tcp:host` and `http://host` without a further option.
fn no_scheme(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    if title.ends_with("compose") {
        processes::compose_files(scanned, title, analysis);
    }
    if analysis
        .findings
        .iter()
        .any(|finding| finding.effect == Effect::Write)
    {
        files::place(args, scanned, title, analysis);
    }
    for word in args.iter().filter(|word| is_command(word)) {
        analysis.add(
            Effect::Code,
            format!(
                "{title}: `{}` may be a command, or name a file of options",
                word.text
            ),
        );
    }
    let texts = ["--xpath", "-show_entries", "-of", "-print_format"];
    let inputs = scanned.values.iter().filter(|(name, _)| !texts.contains(name));
    let operands = scanned.operands.iter().map(|index| args[*index].shape());
    for text in operands.chain(inputs.map(|(_, value)| value.clone())) {
        if text.as_deref().is_none_or(has_scheme) {
            analysis.add(
                Effect::Network,
                format!("{title}: `{}` may lead elsewhere", text.unwrap_or_default()),
            );
        }
    }
    if args.iter().any(|word| word.text.contains("document(")) {
        analysis.add(
            Effect::Unknown,
            format!("{title}: an expression that opens files"),
        );
    }
}

/// Returns `true` for `|command` and `command|`, which some programs run, and for `@file`.
fn is_command(word: &Word) -> bool {
    let runs = |text: String| text.starts_with(['|', '@']) || text.trim_end().ends_with('|');
    word.shape().is_some_and(runs)
}

/// Returns `true` if the name begins like a URL: letters and a colon.
pub(super) fn has_scheme(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, _)| {
        let plain = |sign: char| sign.is_ascii_alphanumeric() || "+.-_,".contains(sign);
        scheme.len() > 1 && scheme.chars().all(plain)
    })
}

/// Accepts names that are resolved through the configured registry; a URL or a registry's name would contact
/// another host.
fn no_address(args: &[Word], title: &str, analysis: &mut Analysis) {
    let leads = |word: &&Word| {
        let first = word.text.split('/').next().unwrap_or_default();
        let registry = word.text.contains('/') && !first.starts_with('.') && first.contains(['.', ':']);
        word.text.contains("://") || word.text.contains("git@") || registry
    };
    let keys = |word: &&Word| {
        ["_auth", "token", "password"]
            .iter()
            .any(|key| word.text.contains(key))
    };
    if args.iter().any(|word| keys(&word)) {
        analysis.add(Effect::Secret, format!("{title}: shows keys"));
    }
    for word in args.iter().filter(leads) {
        analysis.add(
            Effect::Network,
            format!("{title}: `{}` leads elsewhere", word.text),
        );
    }
}

/// Judges `command`: `-v` looks up a program; without it the program runs.
fn command(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    if scanned.options.contains(&"-v") || scanned.options.contains(&"-V") {
        return;
    }
    analysis.wraps = true;
    if let Some(first) = scanned.operands.first() {
        analysis.inner(&args[*first..]);
    }
}
