//! Interpreters: state, results, interrupts, ends.

use ringfence_policy::{Outcome, Timeout};
use ringfence_sandbox::context::{Code, Execution, Language};
use ringfence_sandbox::{ContextChoice, Error, Sandbox};
use tokio::sync::mpsc;

use crate::support::{Test, with_server};

pub(crate) const TESTS: &[Test] = &[
    ("python_keeps_its_state", python_keeps_its_state),
    ("python_awaits_at_the_top", python_awaits_at_the_top),
    ("bash_keeps_its_state", bash_keeps_its_state),
    ("javascript_keeps_its_state", javascript_keeps_its_state),
    ("javascript_imports_modules", javascript_imports_modules),
    (
        "what_takes_too_long_is_interrupted_and_the_state_kept",
        what_takes_too_long_is_interrupted_and_the_state_kept,
    ),
    (
        "an_interpreter_that_ends_is_told_and_replaced",
        an_interpreter_that_ends_is_told_and_replaced,
    ),
    (
        "code_that_waits_for_an_interpreter_that_ends_gets_a_new_one",
        code_that_waits_for_an_interpreter_that_ends_gets_a_new_one,
    ),
    (
        "a_named_context_that_ends_idle_has_not_run_the_next_code",
        a_named_context_that_ends_idle_has_not_run_the_next_code,
    ),
    (
        "variables_of_an_execution_hold_while_it_runs",
        variables_of_an_execution_hold_while_it_runs,
    ),
];

async fn execute_for(
    sandbox: &Sandbox,
    language: Language,
    code: &str,
    timeout: Timeout,
) -> (Execution, String) {
    let code = Code {
        code: code.to_owned(),
        timeout,
        user: None,
        variables: Vec::new(),
    };
    execute_code(sandbox, language, code).await
}

async fn execute_code(sandbox: &Sandbox, language: Language, code: Code) -> (Execution, String) {
    let (sender, mut output) = mpsc::channel(16);
    let executing = sandbox.execute(ContextChoice::Default(language), code, sender);
    let listening = async {
        let mut printed = Vec::new();
        while let Some(chunk) = output.recv().await {
            printed.extend(chunk.bytes);
        }
        String::from_utf8(printed).unwrap()
    };
    let (executed, printed) = tokio::join!(executing, listening);
    (executed.unwrap(), printed)
}

fn end_of(execution: &Execution) -> (Outcome, i32, bool) {
    (execution.outcome, execution.exit_code, execution.context_ended)
}

async fn execute(sandbox: &Sandbox, language: Language, code: &str) -> (Execution, String) {
    execute_for(sandbox, language, code, Timeout::seconds(30)).await
}

fn variables_of_an_execution_hold_while_it_runs() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let run = async |language, code: &str, variables: &[(&str, &str)]| {
            let variables = variables.iter();
            let code = Code {
                code: code.to_owned(),
                timeout: Timeout::seconds(30),
                user: None,
                variables: variables
                    .map(|(name, value)| (name.parse().unwrap(), (*value).to_owned()))
                    .collect(),
            };
            execute_code(&sandbox, language, code).await
        };
        // Code that sets `OWN`, prints both, and takes `OWN` away and fails.
        let languages = [
            (
                Language::Python,
                "import os; os.environ['OWN'] = 'a'",
                "print(os.environ.get('OWN', '-'), os.environ.get('NEW', '-'))",
                "del os.environ['OWN']; 1/0",
            ),
            (
                Language::Bash,
                "export OWN=a",
                r#"bash -c 'echo "${OWN:--} ${NEW:--}"'"#,
                "unset OWN; false",
            ),
            (
                Language::Javascript,
                "process.env.OWN = 'a'; undefined",
                "console.log(process.env.OWN ?? '-', process.env.NEW ?? '-')",
                "delete process.env.OWN; throw new Error()",
            ),
        ];
        let both = [("OWN", "it's"), ("NEW", "c")];
        for (language, set, show, fail) in languages {
            run(language, set, &[]).await;
            assert_eq!(run(language, show, &[]).await.1, "a -\n");
            assert_eq!(run(language, show, &both).await.1, "it's c\n");
            assert_eq!(run(language, fail, &both).await.0.exit_code, 1);
            assert_eq!(run(language, show, &[]).await.1, "a -\n", "{language:?}");
        }
        let (refused, printed) = run(Language::Bash, "echo run", &[("A.B", "")]).await;
        assert_eq!((refused.exit_code, &*printed), (2, ""));
        assert!(
            refused.warnings[0].contains("`A.B` is not a valid name of a variable"),
            "{refused:?}"
        );
    });
}

fn python_keeps_its_state() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let python = async |code| execute(&sandbox, Language::Python, code).await;
        let (first, printed) = python("x = 41\nprint('hello')").await;
        assert_eq!(
            (first.exit_code, first.execution_count, printed.as_str()),
            (0, 1, "hello\n"),
            "{first:?}"
        );
        let (second, printed) = python("x += 1\nx").await;
        assert_eq!(
            (second.value.as_deref(), second.execution_count, printed.as_str()),
            (Some("42"), 2, "")
        );
        let (failed, printed) = python("1/0").await;
        assert_eq!(failed.exit_code, 1);
        assert!(printed.contains("ZeroDivisionError"), "{printed}");
        // All that was printed before the answer comes before it.
        let (_, printed) = python("print('x' * 1_000_000)").await;
        assert_eq!(printed.len(), 1_000_001);
        let (rich, _) = python("class H:\n def _repr_html_(self): return '<b>1</b>'\nH()").await;
        assert_eq!(rich.results[0].data["text/html"], "<b>1</b>");
        let (listed, printed) = python("%cd -q /tmp\nx = !pwd\nx").await;
        assert_eq!(listed.value.as_deref(), Some("['/tmp']"), "{printed}");
        let (_, printed) =
            python("import subprocess; print(subprocess.run(['id', '-u'], capture_output=True).stdout)")
                .await;
        assert_eq!(printed, "b'1000\\n'\n");
        assert_eq!(sandbox.info().contexts, 1);
        let long = execute(&sandbox, Language::Python, "'x' * 100_000").await.0;
        assert_eq!(long.warnings, ["the text of the value is cut"]);
    });
}

fn python_awaits_at_the_top() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let python = async |code| execute(&sandbox, Language::Python, code).await;
        let value = async |code| {
            let (executed, printed) = python(code).await;
            assert_eq!(executed.exit_code, 0, "{printed}");
            executed.value
        };
        let first = "import asyncio\nawait asyncio.sleep(0)\nx = 41\nawait asyncio.sleep(0, x + 1)";
        assert_eq!(value(first).await.as_deref(), Some("42"));
        let tasks = "async def one():\n    yield 1\nasync for i in one():\n    task = asyncio.create_task(asyncio.sleep(0, i))";
        assert_eq!(value(tasks).await, None);
        assert_eq!(value("await task").await.as_deref(), Some("1"));
        // Code without an `await` runs in no loop, and may start one.
        assert_eq!(
            value("asyncio.run(asyncio.sleep(0, 2))").await.as_deref(),
            Some("2")
        );
        assert_eq!(value("await asyncio.sleep(0, 3)").await.as_deref(), Some("3"));
        let (failed, printed) = python("async def fail():\n    1/0\nawait fail()").await;
        assert_eq!(failed.exit_code, 1);
        assert!(
            printed.contains("in fail") && !printed.contains("asyncio"),
            "{printed}"
        );
        let short = Timeout::try_from(0.3).unwrap();
        let slow = "try:\n    await asyncio.sleep(100)\nfinally:\n    ended = True";
        let (slow, printed) = execute_for(&sandbox, Language::Python, slow, short).await;
        assert_eq!(
            (slow.outcome, slow.interrupted),
            (Outcome::TimedOut, true),
            "{printed}"
        );
        assert_eq!(value("x, ended").await.as_deref(), Some("(41, True)"));
    });
}

fn bash_keeps_its_state() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let bash = async |code| execute(&sandbox, Language::Bash, code).await;
        let (first, _) = bash("cd /tmp; a='1 2'; f() { echo \"f $a\"; }; false").await;
        assert_eq!((first.exit_code, first.execution_count), (1, 1));
        assert_eq!(bash("pwd; f").await.1, "/tmp\nf 1 2\n");
        let (failed, printed) = bash("syntax ( error").await;
        assert_ne!(failed.exit_code, 0, "{printed}");
        assert_eq!(bash("echo $a").await.1, "1 2\n");
        // Nothing that it runs gets hold of the bridge.
        let (_, printed) = bash("ls -l /proc/self/fd").await;
        assert!(
            printed.contains("pipe:") && !printed.contains("socket:"),
            "{printed}"
        );
    });
}

fn javascript_imports_modules() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let node = async |code| execute(&sandbox, Language::Javascript, code).await;
        for (code, value) in [
            ("import { join as j, sep } from 'node:path'\nj('a', sep)", "'a/'"),
            (
                "await 1; import path, { join } from \"path\"; path.join === join",
                "true",
            ),
            (
                "import * as all from 'path'; import 'os'\nall.join('a', 'c')",
                "'a/c'",
            ),
            // Names of the interpreter's own program are free.
            ("const vm = 3, now = 4; vm + now + typeof session", "'7undefined'"),
            // Nothing else is taken for an import, and names stay.
            ("`import a from 'b'` + typeof j", "\"import a from 'b'function\""),
        ] {
            let (executed, printed) = node(code).await;
            assert_eq!(
                (executed.value.as_deref(), printed.as_str()),
                (Some(value), ""),
                "{code}"
            );
        }
        for (code, error) in [
            (
                "globalThis.n = 1; eval('import \"os\"')",
                "Cannot use import statement",
            ),
            (
                "import { none } from 'fs'",
                "'fs' does not provide an export named 'none'",
            ),
            ("import none from 'none'", "Cannot find package 'none'"),
            (
                "import path from 'path'\n\nthrow new Error('here')",
                "at cell-9.js:3:7",
            ),
            ("function f() { import path from 'path' }", "SyntaxError"),
        ] {
            let (executed, printed) = node(code).await;
            assert_eq!(executed.exit_code, 1, "{code}");
            assert!(printed.contains(error), "{code}: {printed}");
        }
        assert_eq!(node("n").await.0.value.as_deref(), Some("1"));
        for (code, value) in [
            ("(await import('node:path')).sep", Some("'/'")),
            (
                "import 'os'; const load = (name) => import /* later */ (name)",
                None,
            ),
            (
                "`import(1) ${(await load('path')).sep}` + /import(2)/",
                Some("'import(1) //import(2)/'"),
            ),
            ("class A { import(a) { return a } }; new A().import(5)", Some("5")),
        ] {
            let (executed, printed) = node(code).await;
            assert_eq!(
                (executed.value.as_deref(), printed.as_str()),
                (value, ""),
                "{code}"
            );
        }
    });
}

fn javascript_keeps_its_state() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let node = async |code| execute(&sandbox, Language::Javascript, code).await;
        let (first, printed) = node("const a = 1; console.log('hello'); [a, {b: 2}]").await;
        assert_eq!(
            (first.exit_code, first.value.as_deref(), printed.as_str()),
            (0, Some("[ 1, { b: 2 } ]"), "hello\n"),
            "{first:?}"
        );
        for (code, value) in [
            // What has been declared may be declared again.
            ("const a = 41", None),
            (
                "await new Promise((resolve) => setTimeout(() => resolve(a + 1), 1))",
                Some("42"),
            ),
            ("require('path').join('a', 'b')", Some("'a/b'")),
            ("Symbol('s')", Some("Symbol(s)")),
            ("10n", Some("10n")),
            ("null", Some("null")),
        ] {
            let (executed, printed) = node(code).await;
            assert_eq!(
                (executed.exit_code, executed.value.as_deref(), printed.as_str()),
                (0, value, ""),
                "{code}"
            );
        }
        for (code, error) in [
            (
                "function f() {\n  return g()\n}\nf()",
                "Uncaught ReferenceError: g is not defined\n    at f (cell-8.js:2:3)\n    at cell-8.js:4:1\n",
            ),
            (
                "let q =",
                "Uncaught SyntaxError: Unexpected end of input\n    at cell-9.js:2\n",
            ),
            ("throw {a: 1}", "Uncaught { a: 1 }\n"),
            (
                "({ [Symbol.for('nodejs.util.inspect.custom')]() { throw 1 } })",
                "Uncaught exception while the value was shown\n",
            ),
        ] {
            let (executed, printed) = node(code).await;
            assert_eq!((executed.exit_code, printed.as_str()), (1, error), "{code}");
        }
        // What it throws when nobody waits for it does not end it.
        let later = "setTimeout(() => { throw new Error('later') }); await new Promise((resolve) => setTimeout(resolve, 20)); a";
        let (executed, printed) = node(later).await;
        assert_eq!((executed.exit_code, executed.value.as_deref()), (0, Some("41")));
        assert!(printed.starts_with("Uncaught Error: later\n"), "{printed}");
        // Nothing that it runs gets hold of the bridge.
        let write = "require('child_process').spawnSync('bash', ['-c', 'echo >&3']).stderr.toString()";
        let (written, _) = node(write).await;
        assert!(written.value.unwrap().contains("Bad file descriptor"));
        let (long, _) = node("Array(100).fill('x'.repeat(9_000))").await;
        assert_eq!(long.value.map(|value| value.len()), Some(64 * 1024));
        assert_eq!(long.warnings, ["the text of the value is cut"]);
        let (ended, _) = node("process.exit(4)").await;
        assert_eq!(end_of(&ended), (Outcome::Exited, 4, true), "{ended:?}");
        assert_eq!(node("typeof a").await.0.value.as_deref(), Some("'undefined'"));
    });
}

fn what_takes_too_long_is_interrupted_and_the_state_kept() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let short = Timeout::try_from(0.3).unwrap();
        for (language, before, slow, after) in [
            (
                Language::Python,
                "x = 7",
                "import time\ntime.sleep(100)",
                "print(x)",
            ),
            (Language::Bash, "x=7", "sleep 100", "echo $x"),
            (Language::Bash, "x=7", "(while :; do :; done)", "echo $x"),
            (Language::Javascript, "let x = 7", "for (;;) {}", "console.log(x)"),
            (
                Language::Javascript,
                "let x = 7",
                "await new Promise(() => {})",
                "console.log(x)",
            ),
            (
                Language::Javascript,
                "let x = 7",
                "require('child_process').execFileSync('sleep', ['100'])",
                "console.log(x)",
            ),
        ] {
            execute(&sandbox, language, before).await;
            let (slow, printed) = execute_for(&sandbox, language, slow, short).await;
            assert_eq!(
                (slow.outcome, slow.exit_code, slow.interrupted),
                (Outcome::TimedOut, -1, true),
                "{slow:?} {printed}"
            );
            let (after, printed) = execute(&sandbox, language, after).await;
            assert_eq!((after.exit_code, printed.as_str()), (0, "7\n"), "{after:?}");
        }
    });
}

/// Code that waits for a context that ends meanwhile runs in a new one, and says that the state is lost.
fn code_that_waits_for_an_interpreter_that_ends_gets_a_new_one() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        for (language, ends) in [
            (Language::Python, "import os, time; time.sleep(0.3); os._exit(3)"),
            (Language::Bash, "sleep 0.3; exit 3"),
        ] {
            execute(&sandbox, language, "x=1").await;
            let ending = execute(&sandbox, language, ends);
            let waiting = execute(&sandbox, language, "echo=1");
            let ((ended, _), (after, printed)) = tokio::join!(ending, waiting);
            assert_eq!(end_of(&ended), (Outcome::Exited, 3, true), "{ended:?}");
            assert_eq!(end_of(&after), (Outcome::Exited, 0, false), "{after:?} {printed}");
            assert_eq!(after.execution_count, 1);
            assert!(after.warnings[0].contains("its state is lost"), "{after:?}");
        }
    });
}

fn an_interpreter_that_ends_is_told_and_replaced() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        execute(&sandbox, Language::Python, "x = 1").await;
        let (ended, printed) = execute(
            &sandbox,
            Language::Python,
            "import os; print(x, flush=True); os._exit(3)",
        )
        .await;
        assert_eq!(end_of(&ended), (Outcome::Exited, 3, true), "{ended:?}");
        assert_eq!(printed, "1\n");
        let (after, _) = execute(&sandbox, Language::Python, "print('x' in globals())").await;
        assert_eq!((after.execution_count, after.exit_code), (1, 0));
        let (killed, _) = execute(&sandbox, Language::Python, "import os; os.kill(os.getpid(), 11)").await;
        assert_eq!(end_of(&killed), (Outcome::Signalled, -11, true), "{killed:?}");
        for (code, expected) in [
            ("exit 4", (Outcome::Exited, 4, true)),
            ("exit", (Outcome::Exited, 0, true)),
            ("exec sh -c 'exit 5'", (Outcome::Exited, 5, true)),
            ("(exit 6)", (Outcome::Exited, 6, false)),
        ] {
            let (ended, printed) = execute(&sandbox, Language::Bash, code).await;
            assert_eq!(end_of(&ended), expected, "{code}: {ended:?} {printed}");
        }
        // Code that takes the interpreter's place has its time limit.
        let short = Timeout::try_from(0.3).unwrap();
        let (late, _) = execute_for(&sandbox, Language::Bash, "exec sleep 600", short).await;
        assert_eq!(end_of(&late), (Outcome::TimedOut, -1, true), "{late:?}");
    });
}

fn a_named_context_that_ends_idle_has_not_run_the_next_code() {
    with_server(async |server| {
        let sandbox = server.sandbox().await;
        let made = sandbox
            .create_context(Language::Python, Some("/tmp".to_owned()), None)
            .await
            .unwrap();
        // One that ends idle is not taken for the end of code that it never ran.
        let die = "import threading
def die():
    while not os.path.exists('/tmp/die'): pass
    os._exit(0)
open('/tmp/pid', 'w').write(str(os.getpid()))
threading.Thread(target=die).start()";
        let run = async |code: &str| {
            let code = Code {
                code: code.to_owned(),
                timeout: Timeout::seconds(30),
                user: None,
                variables: Vec::new(),
            };
            let (sender, _output) = mpsc::channel(16);
            sandbox
                .execute(ContextChoice::Id(made.id.clone()), code, sender)
                .await
        };
        let at_first = run("import os; os.getcwd()").await.unwrap();
        assert_eq!(at_first.value.as_deref(), Some("'/tmp'"));
        run(die).await.unwrap();
        let gone = "touch /tmp/die; while kill -0 $(< /tmp/pid); do /bin/true; done 2> /tmp/gone; /bin/true";
        execute(&sandbox, Language::Bash, gone).await;
        let not_run = run("1").await.unwrap();
        assert_eq!(end_of(&not_run), (Outcome::Unknown, 125, true), "{not_run:?}");
        assert!(not_run.warnings[0].contains("was not run"), "{not_run:?}");
        assert!(matches!(run("1").await, Err(Error::NoContext(_))));
        let other = sandbox
            .create_context(Language::Python, None, None)
            .await
            .unwrap();
        sandbox.remove_context(&other.id).unwrap();
        assert!(matches!(
            sandbox.remove_context(&other.id),
            Err(Error::NoContext(_))
        ));
    });
}
