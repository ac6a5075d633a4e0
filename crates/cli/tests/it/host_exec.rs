//! Commands on the host: those that run at once, those that need approval, and that nothing but the approved
//! command runs.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::eventually;
use crate::tools::Tools;

const LISTS: &str = "[hostExecution]\nenabled = true\nallowList = ['@read-only']\nnotifyList = ['touch *']\n";

/// A tool call whose question the test answers.
pub(crate) struct Asking<'a> {
    tools: &'a Tools,
    child: Child,
}

impl<'a> Asking<'a> {
    pub(crate) fn of(tools: &'a Tools, command: &str) -> Self {
        let arguments = json!({ "command": command }).to_string();
        let mut tool = tools.dir.command(["tool", "host_exec", &arguments, "--json"]);
        let child = tool.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        Self { tools, child }
    }

    /// Waits for the question.
    pub(crate) fn question(&self) -> Value {
        let mut found = Value::Null;
        eventually("a question", || {
            let listed = self.tools.dir.run(["approvals", "ls", "--json"]);
            let listed: Value = serde_json::from_str(listed.ok()).unwrap();
            found = listed[0].clone();
            found.is_object()
        });
        found
    }

    pub(crate) fn answer(&self, verdict: &str) {
        let id = self.question()["id"].as_str().unwrap().to_owned();
        self.tools.dir.run(["approvals", verdict, &id]).ok();
    }

    pub(crate) fn end(mut self) -> Value {
        let mut printed = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        self.child.wait().unwrap();
        serde_json::from_str(&printed).unwrap()
    }
}

#[test]
fn it_is_neither_offered_nor_used_unless_switched_on() {
    for config in ["", "[hostExecution]\nenabled = false\nallowList = ['ls *']"] {
        let tools = Tools::new(config);
        assert!(!tools.dir.run(["tool", "--list"]).ok().contains("host_exec"));
        let refused = tools.refused("host_exec", json!({"command": "true"}));
        assert_eq!(
            (refused.kind.as_str(), refused.status),
            ("permission_denied", 125)
        );
        assert!(refused.message.contains("switched off"), "{}", refused.message);
    }
    // Nor by a project's own file.
    let tools = Tools::new("");
    tools.dir.write("work/ringfence.toml", LISTS);
    assert_eq!(
        tools.refused("host_exec", json!({"command": "true"})).kind,
        "permission_denied"
    );
}

#[test]
fn what_the_lists_allow_runs_at_once_on_the_host() {
    let tools = Tools::new(LISTS);
    let secret = tools.dir.write("home/seen", "on the host");
    let ask = |command: &str| tools.ask("host_exec", json!({ "command": command }));
    assert_eq!(ask(&format!("cat {}", secret.display())), "on the host");
    // A line of several parts runs in a plain bash, in our own working directory.
    assert_eq!(ask("pwd | wc -l"), "1\n");
    assert_eq!(ask("basename \"$PWD\" | tr a-z A-Z"), "WORK\n");
    assert_eq!(ask("touch made"), "");
    assert!(tools.dir.path("work/made").exists());
    let log = tools.dir.run(["audit", "tail", "--json"]);
    let told = |words: &str| log.ok().contains(words);
    assert!(
        told("\"judgement\":\"allow (allowList), risk at least 0\""),
        "{log:?}"
    );
    assert!(
        told("\"judgement\":\"notify (notifyList), risk at least "),
        "{log:?}"
    );
}

#[test]
fn what_an_agent_wrote_is_not_obeyed_by_a_program_that_only_reads() {
    let workspace = ["--workspace", "."];
    let tools = Tools::new(LISTS).with(&workspace);
    let settings = |tools: &Tools, touched: &str| {
        let (touched, work) = (tools.dir.path(touched), tools.dir.path("work"));
        format!(
            "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = {}\nfsmonitor = \"touch '{}'; false\"\n",
            work.display(),
            touched.display()
        )
    };
    let write = |path: &str, content: &str| {
        tools.ask("file_write", json!({"path": path, "content": content}));
    };
    write("HEAD", "ref: refs/heads/main\n");
    write("config", &settings(&tools, "touched"));
    write("objects/x", "");
    // The write that would complete a repository is rejected; a program of the user's may do it.
    let refused = tools.refused("file_write", json!({"path": "refs/x", "content": ""}));
    assert!(refused.message.contains("git repository"), "{refused:?}");
    fs::create_dir_all(tools.dir.path("work/refs")).unwrap();
    // Outside Ringfence it has its effect.
    let git = |tools: &Tools| {
        tools.dir.program("git").arg("status").output().unwrap();
    };
    git(&tools);
    assert!(tools.dir.path("touched").exists());
    fs::remove_file(tools.dir.path("touched")).unwrap();
    let asking = Asking::of(&tools, "git status");
    let reasons = asking.question()["reasons"].to_string();
    assert!(reasons.contains("config can say what it runs"), "{reasons}");
    asking.answer("deny");
    assert_eq!(asking.end()["error"]["type"], "rejected");

    // The same holds for a repository that code of a guest has created.
    let other = Tools::new(LISTS).with(&workspace);
    let code = format!(
        "mkdir -p .git/objects .git/refs && echo ref: refs/heads/main > .git/HEAD && cat > .git/config <<'E'\n{}E\n",
        settings(&other, "touched")
    );
    other.ask("run_code", json!({"language": "bash", "code": code}));
    git(&other);
    assert!(other.dir.path("touched").exists());
    fs::remove_file(other.dir.path("touched")).unwrap();
    let asking = Asking::of(&other, "git status");
    asking.answer("deny");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    assert!(!tools.dir.path("touched").exists() && !other.dir.path("touched").exists());
}

/// Starts of the scripts by which a guest makes a repository, and the line by which the host runs its code.
///
/// Its settings name no program where Ringfence has ever looked for them.
const MADE: &[(&str, &str, &str)] = &[
    (
        "a nested repository in the index alone",
        "mkdir sub; cd sub; git init -q .; echo hi > f; echo '* filter=x' > .gitattributes; git add .; git commit -qm 1; cd ..
         git init -q .; printf '[submodule \"sub\"]\\n\\tpath = sub\\n\\turl = ./sub\\n\\tignore = none\\n' > .gitmodules
         git add .gitmodules sub; git commit -qm 1; rm .gitmodules; git -C sub config filter.x.clean 'id > TOUCHED; cat'
         touch -d 2020-01-01 sub/f",
        "git status",
    ),
    (
        "settings elsewhere, by a file with 70,000 newlines",
        "git init -q .; echo x > g; echo '* filter=x' > .gitattributes; git add .; git commit -qm 1; cp -r .git common
         git --git-dir=common config filter.x.clean 'id > TOUCHED; cat'; printf ../common > .git/commondir
         head -c 70000 /dev/zero | tr '\\0' '\\n' >> .git/commondir; touch -d 2020-01-01 g",
        "git status",
    ),
    (
        "settings elsewhere, by a name that is no text",
        "git init -q .; echo x > g; echo '* filter=x' > .gitattributes; git add .; git commit -qm 1
         D=$(printf 'com\\377'); cp -r .git \"$D\"; git --git-dir=\"$D\" config filter.x.clean 'id > TOUCHED; cat'
         printf '../com\\377\\n' > .git/commondir; touch -d 2020-01-01 g",
        "git status",
    ),
    (
        "a repository of two files",
        "mkdir /tmp/r; cd /tmp/r; git init -q .; echo x > g; git add .; git commit -qm 1; cp -r .git /workspace/c
         cd /workspace; mv c/HEAD HEAD; echo c > commondir
         printf '[core]\\n\\tbare = true\\n[diff \"x\"]\\n\\ttextconv = ./t\\n' > c/config; echo '* diff=x' > c/info/attributes
         printf '#!/bin/sh\\nid > TOUCHED\\ncat\\n' > t; chmod +x t",
        "git log -p",
    ),
];

/// Author of a guest's commits, and a home where git may write.
const AUTHOR: &str = "export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.invalid GIT_COMMITTER_NAME=a \
                      GIT_COMMITTER_EMAIL=a@b.invalid; ";

/// The settings that `host_exec` gives git.
fn with_settings<'a>(git: &'a mut std::process::Command, line: &str) -> &'a mut std::process::Command {
    git.args(line.split(' ').skip(1))
        .env("GIT_CONFIG_COUNT", "2")
        .env("GIT_CONFIG_KEY_0", "core.fsmonitor")
        .env("GIT_CONFIG_VALUE_0", "false")
        .env("GIT_CONFIG_KEY_1", "diff.ignoreSubmodules")
        .env("GIT_CONFIG_VALUE_1", "dirty")
}

#[test]
fn a_repository_that_a_guest_made_is_asked_about() {
    for (what, code, line) in MADE {
        let tools = Tools::new(LISTS).with(&["--workspace", "."]);
        let touched = tools.dir.path("touched");
        let code = code.replace("TOUCHED", &touched.display().to_string());
        let made = tools.ask(
            "run_code",
            json!({"language": "bash", "code": format!("set -e; {AUTHOR}{code}")}),
        );
        assert_eq!(made["exit_code"], 0, "{what}: {made}");
        // Outside Ringfence it has its effect.
        with_settings(&mut tools.dir.program("git"), line)
            .output()
            .unwrap();
        assert!(touched.exists(), "{what}");
        fs::remove_file(&touched).unwrap();
        let asking = Asking::of(&tools, line);
        let reasons = asking.question()["reasons"].to_string();
        assert!(reasons.contains("can say what it runs"), "{what}: {reasons}");
        asking.answer("deny");
        assert_eq!(asking.end()["error"]["type"], "rejected", "{what}");
        assert!(!touched.exists(), "{what}");
    }
}

#[test]
fn a_users_own_repository_is_not_asked_about() {
    let tools = Tools::new(LISTS).with(&["--workspace", "."]);
    let git = |words: &str| {
        let output = tools.dir.program("git").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
    };
    git("init -q .");
    fs::write(tools.dir.path("work/a"), "x").unwrap();
    git("add a");
    git("-c user.name=a -c user.email=a@b.invalid commit -qm first");
    let status = |line: &str| tools.ask("host_exec", json!({ "command": line }));
    assert_eq!(status("git status --short"), "");
    let code = "echo x > made; git init -q sub; echo x >> .git/config || true; mv .git old || true";
    tools.ask("run_code", json!({"language": "bash", "code": code}));
    // The guest could not touch it, and what it made is no part of it.
    assert_eq!(status("git status --short"), "?? made\n?? sub/\n");
    assert_eq!(status("git log --format=%s"), "first\n");
    let asking = Asking::of(&tools, "cd sub && git status");
    let reasons = asking.question()["reasons"].to_string();
    assert!(reasons.contains("sub/.git can say what it runs"), "{reasons}");
    asking.answer("deny");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    // Git runs the hooks of a remote that is a directory here.
    tools.ask(
        "run_code",
        json!({"language": "bash", "code": "git init -q --bare evil.git"}),
    );
    git("init -q --bare ../elsewhere.git");
    git("remote add up ../elsewhere.git");
    assert!(status("git status --short").is_string());
    git("remote set-url up ./evil.git");
    let asking = Asking::of(&tools, "git status --short");
    let reasons = asking.question()["reasons"].to_string();
    assert!(reasons.contains(".git/config can say what it runs"), "{reasons}");
    asking.answer("deny");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    // Another one in its place could be anybody's.
    fs::rename(tools.dir.path("work/.git"), tools.dir.path("away")).unwrap();
    git("init -q .");
    let asking = Asking::of(&tools, "git status");
    asking.answer("deny");
    assert_eq!(asking.end()["error"]["type"], "rejected");
}

/// Destinations that a program in the fence has prepared: each line replaces `.git/config`.
const REPLACING: &[(&str, &str)] = &[
    ("ln -s .git link", "cp settings link/config"),
    (
        "mkdir -p dir/in; ln -s ../.git dir/link; ln -s link dir/chain",
        "cp settings dir/chain/config",
    ),
    ("mkdir -p src/.git; cp settings src/.git/config", "cp -r src/. ."),
];

#[test]
fn a_line_that_writes_through_what_a_guest_made_is_asked_about() {
    for (code, line) in REPLACING {
        let tools =
            Tools::new("[hostExecution]\nenabled = true\nallowList = ['cp *']\n").with(&["--workspace", "."]);
        let path = |name: &str| tools.dir.path("work").join(name);
        let init = || {
            tools
                .dir
                .program("git")
                .args(["init", "-q", "."])
                .status()
                .unwrap()
        };
        assert!(init().success());
        let code = format!("set -e; echo '# replaced' > settings; {code}");
        let made = tools.ask("run_code", json!({"language": "bash", "code": code}));
        assert_eq!(made["exit_code"], 0, "{line}: {made}");
        let settings = || fs::read_to_string(path(".git/config")).unwrap();
        let own = settings();
        // Outside Ringfence it has its effect.
        let mut words = line.split(' ');
        let outside = tools.dir.program(words.next().unwrap()).args(words).status();
        assert!(outside.unwrap().success(), "{line}");
        assert_eq!(settings(), "# replaced\n", "{line}");
        fs::write(path(".git/config"), &own).unwrap();
        let asking = Asking::of(&tools, line);
        let reasons = asking.question()["reasons"].to_string();
        assert!(reasons.contains("/.git"), "{line}: {reasons}");
        asking.answer("deny");
        assert_eq!(asking.end()["error"]["type"], "rejected", "{line}");
        assert_eq!(settings(), own, "{line}");
        assert_eq!(
            tools.ask("host_exec", json!({"command": "cp settings plain"})),
            ""
        );
        assert!(path("plain").exists());
    }
}

#[test]
fn output_is_told_in_sections_and_cut() {
    let tools = Tools::new(LISTS);
    let ask = |command: &str| {
        tools
            .ask("host_exec", json!({ "command": command }))
            .as_str()
            .unwrap()
            .to_owned()
    };
    let failed = ask("ls /no-such-file");
    assert!(
        failed.starts_with("[stderr]\n") && failed.ends_with("[exit code 2]"),
        "{failed}"
    );
    let long = ask("seq 1 100000");
    assert!(
        long.ends_with("[output truncated at 10000 characters]"),
        "{}",
        long.len()
    );
    let limited = Tools::new(&format!(
        "{LISTS}[permissions.tool_limits]\nhost_exec_timeout_secs = 0.5"
    ));
    let endless = limited.ask("host_exec", json!({"command": "tail -f /dev/null"}));
    assert!(endless.as_str().unwrap().contains("[timed out]"), "{endless}");
}

#[test]
fn the_commands_are_those_of_the_system_whatever_the_workspace_holds() {
    let tools = Tools::new(LISTS);
    let evil = tools.dir.write("work/ls", "#!/bin/sh\necho EVIL");
    fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let rc = tools.dir.write("work/rc", "echo EVIL");
    let mut command = tools
        .dir
        .command(["tool", "host_exec", r#"{"command": "ls; ls | cat"}"#]);
    let path = format!("{}:/usr/bin", tools.dir.path("work").display());
    let output = command
        .env("PATH", path)
        .env("BASH_ENV", &rc)
        .env("ENV", &rc)
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "ls\nrc\nls\nrc\n");
}

#[test]
fn what_no_list_allows_waits_for_a_person() {
    let tools = Tools::new(LISTS);
    tools.dir.write("work/old", "x");
    let asking = Asking::of(&tools, "rm old");
    let question = asking.question();
    assert_eq!(
        (&question["text"], &question["kind"]),
        (&json!("rm old"), &json!("command")),
        "{question}"
    );
    assert!(question["risk"].as_u64().unwrap() >= 9, "{question}");
    assert!(tools.dir.path("work/old").exists());
    asking.answer("deny");
    let denied = asking.end();
    assert_eq!(denied["error"]["type"], "rejected", "{denied}");
    assert!(tools.dir.path("work/old").exists());

    let asking = Asking::of(&tools, "rm old");
    asking.answer("approve");
    assert_eq!(asking.end(), json!(""));
    assert!(!tools.dir.path("work/old").exists());
    // An approval holds once: the next call asks again.
    tools.dir.write("work/old", "x");
    let asking = Asking::of(&tools, "rm old");
    asking.answer("deny");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    assert!(tools.dir.path("work/old").exists());
}

#[test]
fn nobody_answering_is_told_apart_from_no() {
    let tools = Tools::new(&format!("{LISTS}askTimeoutMin = '300ms'"));
    tools.dir.write("work/old", "x");
    let refused = tools.refused("host_exec", json!({"command": "rm old"}));
    assert_eq!(refused.kind, "approval_timeout");
    assert!(
        refused.message.contains("nobody answered within 300ms"),
        "{}",
        refused.message
    );
    assert!(tools.dir.path("work/old").exists());
}

#[test]
fn what_was_changed_while_it_waited_does_not_run() {
    let tools = Tools::new(LISTS);
    tools.dir.write("work/job.sh", "touch approved");
    let asking = Asking::of(&tools, "bash job.sh");
    asking.question();
    tools.dir.write("work/job.sh", "touch swapped");
    asking.answer("approve");
    let changed = asking.end();
    assert_eq!(changed["error"]["type"], "permission_denied", "{changed}");
    assert!(
        changed["error"]["message"]
            .as_str()
            .unwrap()
            .contains("job.sh changed"),
        "{changed}"
    );
    assert!(!tools.dir.path("work/swapped").exists() && !tools.dir.path("work/approved").exists());
    // Unchanged, it runs.
    tools.dir.write("work/job.sh", "touch approved");
    let asking = Asking::of(&tools, "bash job.sh");
    asking.answer("approve");
    asking.end();
    assert!(tools.dir.path("work/approved").exists());
}

#[test]
fn a_yes_for_the_session_ends_when_what_is_read_changes() {
    let tools = Tools::new(LISTS);
    tools.dir.write("work/job.sh", ". ./lib.sh");
    tools.dir.write("work/lib.sh", "echo safe");
    let begin = || {
        let arguments = json!({"command": "bash job.sh"}).to_string();
        let options = ["--session", "talk", "--no-engine", "--json"];
        let mut tool = tools
            .dir
            .command([&["tool", "host_exec", &arguments], &options[..]].concat());
        let child = tool.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        Asking { tools: &tools, child }
    };
    let asking = begin();
    let question = asking.question();
    assert_eq!(question["lasting"], "never", "{question}");
    let id = question["id"].as_str().unwrap();
    tools.dir.run(["approvals", "approve", id, "--session"]).ok();
    assert!(asking.end().to_string().contains("safe"));
    // The same again needs no approval.
    assert!(begin().end().to_string().contains("safe"));
    tools.dir.write("work/lib.sh", "touch swapped");
    let asking = begin();
    asking.answer("deny");
    assert_eq!(asking.end()["error"]["type"], "rejected");
    assert!(!tools.dir.path("work/swapped").exists());
}

#[test]
fn a_risk_of_nine_is_never_offered_for_good() {
    let tools = Tools::new(LISTS);
    tools.dir.write("work/old", "x");
    for (command, lasting) in [
        ("rm old", "never"),
        ("mkdir new", "offered"),
        ("bash $(echo x)", "once"),
    ] {
        let asking = Asking::of(&tools, command);
        let question = asking.question();
        assert_eq!(question["lasting"], lasting, "{question}");
        asking.answer("deny");
        asking.end();
    }
}

#[test]
fn an_asker_that_was_killed_runs_nothing_later() {
    let tools = Tools::new(LISTS);
    tools.dir.write("work/old", "x");
    let mut asking = Asking::of(&tools, "rm old");
    let id = asking.question()["id"].as_str().unwrap().to_owned();
    asking.child.kill().unwrap();
    asking.child.wait().unwrap();
    let late = tools.dir.run(["approvals", "approve", &id]);
    assert_ne!(late.status, 0, "{late:?}");
    assert!(tools.dir.path("work/old").exists());
}

#[test]
fn what_hides_in_a_command_is_asked_about() {
    let tools = Tools::new(&format!("{LISTS}askTimeoutMin = '100ms'"));
    let trap = tools.dir.path("work/trap");
    for command in [
        "ls; touch trap".to_owned() + " x; rm trap",
        "ls `rm -f trap`".to_owned(),
        "ls $(rm -f trap)".to_owned(),
        "ls\nrm -f trap".to_owned(),
        "cat <(rm -f trap)".to_owned(),
        "find . -delete".to_owned(),
        "find . -name trap -exec rm {} +".to_owned(),
        "sort -o trap /dev/null".to_owned(),
        "env rm trap".to_owned(),
        "xargs rm < names".to_owned(),
        "PATH=. ls".to_owned(),
        "ls > trap".to_owned(),
        "sed -i d trap".to_owned(),
        "awk 'BEGIN { system(\"rm trap\") }'".to_owned(),
        "git -c core.pager='rm trap' log".to_owned(),
        "bash -c 'rm trap'".to_owned(),
        "timeout 5 rm trap".to_owned(),
        "nohup rm trap".to_owned(),
    ] {
        fs::write(&trap, "whole").unwrap();
        let refused = tools.refused("host_exec", json!({ "command": command }));
        assert_eq!(refused.kind, "approval_timeout", "{command}");
        assert_eq!(fs::read_to_string(&trap).unwrap(), "whole", "{command}");
    }
}
