//! Hundreds of tool calls by several callers through one server: each finds its own files and no others,
//! each call is recorded once, and nothing is left.

mod alone {
    use std::collections::BTreeMap;
    use std::fs;

    use serde_json::{Value, json};

    use crate::soak::alone::{at_rest, settled};
    use crate::support::finish;
    use crate::world::World;

    /// Users with their own directories, and directories named on the command line.
    const CALLERS: &[&[&str]] = &[
        &["--user", "ann"],
        &["--user", "bob"],
        &["--user", "cleo"],
        &["--user", "dan"],
        &["--workspace", "one"],
        &["--workspace", "two"],
    ];
    const STEPS: usize = 132;
    const NAMES: usize = 7;

    /// A caller of tools, and the expected files of its directory.
    struct Caller<'a> {
        world: &'a World,
        options: &'static [&'static str],
        files: BTreeMap<String, String>,
        used: usize,
    }

    impl Caller<'_> {
        fn use_tool(&mut self, tool: &str, arguments: Value) -> Value {
            self.used += 1;
            self.world.tool(self.options, tool, &arguments)
        }

        fn step(&mut self, step: usize) {
            let name = format!("f{}", step % NAMES);
            let mark = format!("{}:{step};", self.options[1]);
            let held = self.files.get(&name).cloned();
            match step % 11 {
                0 | 5 => {
                    let written = self.use_tool("file_write", json!({"path": name, "content": mark}));
                    assert_eq!(written["bytes_written"], mark.len(), "{written}");
                    self.files.insert(name, mark);
                }
                1 => {
                    let code =
                        format!("open('{name}', 'a').write('{mark}'); print(open('{name}').read(), end='')");
                    let said = self.use_tool("run_python_code", json!({"code": code}));
                    let now = held.unwrap_or_default() + &mark;
                    assert_eq!(said, json!(now));
                    self.files.insert(name, now);
                }
                2 | 7 => {
                    let read = self.use_tool("file_read", json!({"path": name}));
                    match held {
                        Some(content) => assert_eq!(read["text"], content, "{read}"),
                        None => assert_eq!(read["error"]["type"], "not_found", "{read}"),
                    }
                }
                3 => {
                    let code = format!("printf '%s' '{mark}' > {name}; cat f*");
                    let result = self.use_tool("run_code", json!({"code": code, "language": "bash"}));
                    self.files.insert(name, mark);
                    let all: String = self.files.values().map(String::as_str).collect();
                    assert_eq!(result["stdout"], all, "{result}");
                }
                4 => {
                    let result = self.use_tool("shell", json!({"command": "cat", "args": [name]}));
                    assert_eq!(result["stdout"], held.clone().unwrap_or_default(), "{result}");
                    assert_eq!(result["exit_code"] == 0, held.is_some(), "{result}");
                }
                6 => {
                    let listed = self.use_tool("file_list", json!({}));
                    let found = listed["entries"].as_array().unwrap().iter();
                    let found: Vec<&str> = found.map(|entry| entry["name"].as_str().unwrap()).collect();
                    assert_eq!(found, self.files.keys().collect::<Vec<_>>(), "{listed}");
                }
                8 => {
                    let gone = self.use_tool("file_delete", json!({"path": name}));
                    assert_eq!(
                        gone["deleted"].is_string(),
                        self.files.remove(&name).is_some(),
                        "{gone}"
                    );
                }
                9 => self.reach_out(step),
                _ => {
                    let code =
                        "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '1000'])\nwhile True: pass";
                    let result = self.use_tool("run_code", json!({"code": code, "timeout": "100ms"}));
                    assert_eq!(result["meta"]["outcome"], "timed_out", "{result}");
                }
            }
        }

        /// Makes a call that must fail, and is recorded nevertheless.
        fn reach_out(&mut self, step: usize) {
            let refused = match step % 4 {
                0 => self.use_tool("file_read", json!({"path": "../bob/f0"})),
                1 => self.use_tool("run_code", json!({"code": 1})),
                2 => self.use_tool("no_such_tool", json!({})),
                _ => {
                    let code = json!({"code": "import os; print(os.path.exists('../bob'), os.path.exists('/workspace/../bob'))"});
                    let result = self.use_tool("run_code", code);
                    assert_eq!(result["stdout"], "False False\n", "{result}");
                    return;
                }
            };
            assert!(refused["error"]["type"].is_string(), "{refused}");
        }
    }

    /// Runs these steps for all callers at once; counts the calls of each tool.
    fn play(world: &World, callers: &mut [Caller<'_>], steps: std::ops::Range<usize>) {
        std::thread::scope(|scope| {
            for caller in callers.iter_mut() {
                let steps = steps.clone();
                scope.spawn(move || steps.for_each(|step| caller.step(step)));
            }
        });
        finish(&mut world.command(&[], ["audit", "verify"]), b"").ok();
        let used: usize = callers.iter().map(|caller| caller.used).sum();
        assert_eq!(recorded(world).values().sum::<usize>(), used);
    }

    /// Returns the number of recorded calls by scope, without the runs that wait for a warm server.
    fn recorded(world: &World) -> BTreeMap<String, usize> {
        let log = fs::read_to_string(world.dir.path("state/ringfence/audit/audit.jsonl")).unwrap();
        let mut counts = BTreeMap::new();
        for line in log.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            if record["tool"] == "run" {
                continue;
            }
            let scope = record["who"]["scope"].as_str().unwrap().to_owned();
            *counts.entry(scope).or_default() += 1;
        }
        counts
    }

    #[test]
    fn many_uses_stay_apart_and_leave_a_record_each_and_nothing_else() {
        let world = World::before_engine();
        let config = "[artifacts]\nstore = 'never'\n[engine]\npool_size = 1\n\
                      [permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'users/{user_id}'\n";
        world.dir.write("config/ringfence/ringfence.toml", config);
        for name in ["one", "two"] {
            fs::create_dir(world.dir.path("work").join(name)).unwrap();
        }
        world.start_engine();
        let engine = world.engine_pid().unwrap();
        let caller = |options: &&'static [&'static str]| Caller {
            world: &world,
            options,
            files: BTreeMap::new(),
            used: 0,
        };
        let mut callers: Vec<Caller<'_>> = CALLERS.iter().map(caller).collect();
        play(&world, &mut callers, 0..22);
        let before = at_rest(engine);
        play(&world, &mut callers, 22..77);
        let after_some = settled(engine, &before);
        play(&world, &mut callers, 77..STEPS);
        let after_all = settled(engine, &before);
        assert!(
            after_all.memory < after_some.memory + 4096,
            "the server grew from {} to {} KiB",
            after_some.memory,
            after_all.memory
        );
        let counts = recorded(&world);
        for user in ["ann", "bob", "cleo", "dan"] {
            assert_eq!(counts[user], STEPS, "{counts:?}");
        }
        assert_eq!(counts["local"], 2 * STEPS, "{counts:?}");
        drop(callers);
        world.close();
    }
}
