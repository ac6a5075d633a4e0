//! Hundreds of runs of every kind through one server, eight at a time; afterwards its state is unchanged.

pub(crate) mod alone {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::leftovers::{control_groups, processes};
    use crate::support::eventually_none;
    use crate::world::World;

    const RUNS: usize = 800;
    const AT_ONCE: usize = 8;

    /// Kinds of exits: arguments, expected outcome, and exit code.
    const KINDS: &[(&[&str], &str, i64)] = &[
        (&["-c", "print(sum(range(1000)))"], "exited", 0),
        (&["-c", "print('x'); 1/0"], "exited", 1),
        (
            &["-l", "bash", "-c", "echo a | cat; sleep 1000 & exit 7"],
            "exited",
            7,
        ),
        (
            &[
                "-c",
                "import sys\nfor _ in range(400): sys.stdout.write('flood ' * 1000)",
            ],
            "exited",
            0,
        ),
        (
            &[
                "-c",
                "open('/output/f', 'w').write('x' * 10000); import os; os.kill(os.getpid(), 11)",
            ],
            "signalled",
            -11,
        ),
        (
            &[
                "-c",
                "import threading, subprocess\nsubprocess.run(['true'])\nt = threading.Thread(target=print); t.start()",
            ],
            "exited",
            0,
        ),
        (&["-c", "import sys; sys.exit(3)"], "exited", 3),
        (&["-c", "print('plain')"], "exited", 0),
    ];

    /// The costly kinds, each in one run of twenty.
    const RARE: &[(&[&str], &str, i64)] = &[
        (&["--timeout", "150ms", "-c", "while True: pass"], "timed_out", -1),
        (
            &["--memory", "48MiB", "-c", "data = bytearray(400 << 20)"],
            "memory_exceeded",
            -9,
        ),
        (
            &[
                "--timeout",
                "300ms",
                "--pids",
                "12",
                "-l",
                "bash",
                "-c",
                "b() { b | b & wait; }; b; sleep 100",
            ],
            "timed_out",
            -1,
        ),
        (
            &["-l", "javascript", "-c", "console.log(1); process.exit(5)"],
            "exited",
            5,
        ),
    ];

    fn play(world: &World, number: usize) {
        let (args, outcome, exit_code) = match number % 20 {
            19 => RARE[number / 20 % RARE.len()],
            other => KINDS[other % KINDS.len()],
        };
        let run = world.json(args);
        let found = (
            run.get("meta.outcome").as_str().unwrap(),
            run.get("exit_code").as_i64().unwrap(),
        );
        // If no process of a bomb can start another, the shell may exit early.
        let bomb = args.contains(&"12") && found.0 == "exited";
        assert!(bomb || found == (outcome, exit_code), "run {number}: {run:?}");
    }

    fn play_all(world: &World, runs: std::ops::Range<usize>) {
        let next = AtomicUsize::new(runs.start);
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= runs.end {
                            return;
                        }
                        play(world, number);
                    }
                });
            }
        });
    }

    /// The server's own thread, and those for slow system calls.
    const MAX_THREADS: usize = 9;

    /// Control groups that are open at rest: one for each worker of the pool, and as many that were kept to be used
    /// again.
    const MAX_OPEN_GROUPS: usize = 16;

    /// The server's resources: descriptors by kind, threads, descendants, and memory in KiB.
    #[derive(Debug)]
    pub(crate) struct State {
        descriptors: BTreeMap<String, usize>,
        /// Descriptors of files of control groups.
        group_files: BTreeMap<String, usize>,
        threads: usize,
        groups: usize,
        zombies: usize,
        fenced: usize,
        mounts: usize,
        pub(crate) memory: u64,
    }

    impl State {
        /// Returns `true` if all but the memory is equal. The numbers of blocking threads and of kept control groups
        /// may vary within their limits.
        fn looks_like(&self, other: &Self) -> bool {
            let counts = |state: &Self| {
                (
                    state.threads <= MAX_THREADS,
                    state.group_files.values().all(|files| *files <= MAX_OPEN_GROUPS),
                    state.groups,
                    state.zombies,
                    state.fenced,
                    state.mounts,
                )
            };
            self.descriptors == other.descriptors && counts(self) == counts(other)
        }

        fn of(engine: u32) -> Self {
            let proc = format!("/proc/{engine}");
            let count = |name: &str| fs::read_dir(format!("{proc}/{name}")).unwrap().count();
            let (mut descriptors, mut group_files) = (BTreeMap::new(), BTreeMap::new());
            for entry in fs::read_dir(format!("{proc}/fd")).unwrap().flatten() {
                let target = fs::read_link(entry.path()).unwrap_or_default();
                // The file's identity and the pipe's number do not count.
                let kind = target.to_string_lossy().replace(|c: char| c.is_ascii_digit(), "");
                let files = if kind.starts_with("/sys/fs/cgroup/") {
                    &mut group_files
                } else {
                    &mut descriptors
                };
                *files.entry(kind).or_default() += 1;
            }
            let status = fs::read_to_string(format!("{proc}/status")).unwrap();
            let memory = status
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:"))
                .unwrap();
            let all = processes();
            let descends = |mut pid: u32| {
                while pid > 1 && pid != engine {
                    pid = all
                        .iter()
                        .find(|process| process.pid == pid)
                        .map_or(0, |process| process.parent);
                }
                pid == engine
            };
            let own = format!("ringfence-{engine}-");
            Self {
                descriptors,
                group_files,
                threads: count("task"),
                groups: control_groups()
                    .iter()
                    .filter(|group| group.to_string_lossy().contains(&own))
                    .count(),
                zombies: all
                    .iter()
                    .filter(|process| process.state == 'Z' && descends(process.pid))
                    .count(),
                fenced: all
                    .iter()
                    .filter(|process| process.pid != engine && descends(process.pid))
                    .count(),
                mounts: fs::read_to_string("/proc/self/mountinfo")
                    .unwrap()
                    .lines()
                    .count(),
                memory: memory.trim().trim_end_matches(" kB").parse().unwrap(),
            }
        }
    }

    /// Waits until the state is stable: the pool is full, and all runs are cleaned up.
    pub(crate) fn at_rest(engine: u32) -> State {
        let mut last = State::of(engine);
        let mut same = 0;
        eventually_none("what a server does that comes to no rest", || {
            let now = State::of(engine);
            same = if now.looks_like(&last) { same + 1 } else { 0 };
            last = now;
            if same < 30 {
                vec![format!("{last:#?}")]
            } else {
                Vec::new()
            }
        });
        last
    }

    /// Waits until the pool is full and all runs are cleaned up, as in `before`.
    pub(crate) fn settled(engine: u32, before: &State) -> State {
        eventually_none("what the runs left", || {
            let now = State::of(engine);
            if now.looks_like(before) {
                Vec::new()
            } else {
                vec![format!("before: {before:#?}\nnow: {now:#?}")]
            }
        });
        State::of(engine)
    }

    #[test]
    fn many_runs_leave_nothing() {
        let world = World::before_engine();
        world.dir.write(
            "config/ringfence/ringfence.toml",
            "[artifacts]\nstore = 'never'\n",
        );
        world.start_engine();
        let engine = world.engine_pid().unwrap();
        play_all(&world, 0..100);
        let before = at_rest(engine);
        assert_eq!(before.zombies, 0, "{before:?}");
        play_all(&world, 100..300);
        let after_300 = settled(engine, &before);
        play_all(&world, 300..RUNS);
        let after_all = settled(engine, &before);
        assert!(
            after_all.memory < after_300.memory + 4096,
            "the server grew from {} to {} KiB",
            after_300.memory,
            after_all.memory
        );
        world.close();
    }
}
