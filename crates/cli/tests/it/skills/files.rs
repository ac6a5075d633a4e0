//! Files of skills: all kinds of types, errors, and endless code.

use super::{put, run};
use crate::mcp::Client;
use crate::support::{Dir, finish};
use crate::world::World;

const KINDS: &str = r#"
import abc, dataclasses, datetime, enum, functools, sys, typing

class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"

class Flag(enum.Enum):
    A = b"bytes"

@dataclasses.dataclass
class Node:
    name: str
    kids: list["Node"] = dataclasses.field(default_factory=list)

@dataclasses.dataclass
class Round:
    radius: float

@dataclasses.dataclass
class Square:
    side: int

class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...

class Needy:
    def __init__(self, key): pass
    def x(self): pass

class Kinds:
    """Takes types of all kinds."""

    def paint(self, colour: Colour = Colour.RED) -> str:
        """Paints."""
        return colour.name

    def count(self, node: Node) -> int:
        return 1 + sum(map(self.count, node.kids))

    def flag(self, flag: Flag): pass

    def when(self, day: datetime.date | str) -> str:
        return type(day).__name__

    def day(self, day: datetime.date) -> str:
        return day.strftime("%A")

    def area(self, shape: Round | Square) -> str:
        return type(shape).__name__

    def dates(self, days: dict[str, datetime.date]) -> list[str]:
        return [type(day).__name__ for day in days.values()]

    def whole(self, number: int) -> int:
        return len(range(number))

    def odd(self, key=lambda: None, text="x" * 500): pass

    def leave(self):
        sys.exit("enough")

    def circle(self) -> typing.Any:
        around = []
        around.append(around)
        return around

    def secret(self):
        raise ValueError("refused with token ghp_abcdefghijklmnopqrstuvwxyz0123456789")

    @functools.cached_property
    def value(self):
        raise AssertionError("nobody asked for it")
"#;

#[test]
fn one_class_that_cannot_be_offered_takes_no_other_along() {
    let dir = Dir::new();
    // Named like a module of Python's library, which other modules there import.
    put(&dir, "calendar.py", KINDS);
    let listed = dir.run(["skills", "ls", "--skills", "skills"]);
    assert!(
        listed.ok().contains("Kinds.count(node: Node) -> int\n"),
        "{listed:?}"
    );
    assert!(
        listed.ok().contains("Kinds.odd(key=..., text=...)\n"),
        "{listed:?}"
    );
    assert!(!listed.ok().contains("value"), "{listed:?}");
    for told in [
        "`Needy` is not offered: it cannot be made: TypeError: ",
        "`Kinds.flag` is not offered: `Flag` has values that JSON does not carry",
    ] {
        assert!(listed.stderr.contains(told), "{told}: {listed:?}");
    }
    assert!(!listed.stderr.contains("Shape"), "{listed:?}");
}

#[test]
fn types_are_explained_and_arguments_arrive_as_them() {
    let world = World::here();
    put(&world.dir, "calendar.py", KINDS);
    let code = r#"
kinds = device.Kinds
print(device.describe_function("Kinds.paint"))
print(device.describe_function("Kinds.count").splitlines()[-1])
print(kinds.paint(), kinds.paint("blue"), kinds.count({"name": "a", "kids": [{"name": "b"}]}), kinds.whole(3.0))
print(kinds.when("2026-05-31"), kinds.when("soon"), kinds.day("2026-05-31"), kinds.dates({"a": "2026-05-31"}))
print(kinds.area({"radius": 1}), kinds.area({"side": 1}))
for act in (lambda: kinds.day("soon"), kinds.leave, kinds.leave, kinds.circle, kinds.secret, lambda: kinds.whole(float("nan"))):
    try:
        act()
    except Exception as error:
        print(type(error).__name__, error)
"#;
    let ran = run(&world, &[], code);
    let expected = r#"def paint(colour: Colour = 'red') -> str:
    """Paints.

    Colour: 'red' or 'blue'"""
    """Node: {'name': str, 'kids': list[Node] (optional)}"""
RED BLUE 2 3
date str Sunday ['date']
Round Square
TypeError Kinds.day: `day`: Invalid isoformat string: 'soon'
RuntimeError Kinds.leave: SystemExit: enough
RuntimeError Kinds.leave: SystemExit: enough
RuntimeError Kinds.circle: ValueError: a value that is nested more than 32 deep cannot go over the bridge
RuntimeError Kinds.secret: ValueError: refused with token [redacted:github-token]
ValueError what is no number, or infinite, cannot go over the bridge
"#;
    assert_eq!(ran.stdout(), expected, "{ran:#?}");
    world.close();
}

#[test]
fn help_tells_what_there_is() {
    let world = World::here();
    put(&world.dir, "calendar.py", KINDS);
    let code = "print('Kinds' in dir(device)); help(device); help(device.Kinds)\ndevice.Kinds.paint('green')";
    let ran = run(&world, &[], code);
    for told in [
        "True\n",
        "There is Kinds.",
        "Kinds.paint(colour: Colour = 'red') -> str\n        Paints.",
    ] {
        assert!(ran.stdout().contains(told), "{told}: {ran:#?}");
    }
    // The traceback has only the program's frames.
    let told: Vec<&str> = ran.stderr().lines().collect();
    assert_eq!(
        told.iter().filter(|line| line.contains("File \"")).count(),
        1,
        "{ran:#?}"
    );
    assert!(
        ran.stderr()
            .contains("\"green\" is not one of \"red\" or \"blue\""),
        "{ran:#?}"
    );
    world.close();
}

#[test]
fn a_file_that_never_loads_holds_up_no_other_for_ever() {
    let world = World::here();
    put(
        &world.dir,
        "good.py",
        "class Good:\n    def get(self) -> int:\n        return 1\n",
    );
    put(
        &world.dir,
        "stuck.py",
        "import time\nwhile True: time.sleep(60)\n",
    );
    let pipe = world.dir.path("work/skills/pipe.py");
    finish(world.dir.program("mkfifo").arg(&pipe), b"").ok();
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[skills]\nstart_timeout = '10s'\n",
    );
    // The return itself is the assertion: nothing waits for the end of the process.
    let ran = run(&world, &[], "print(device.Good.get())");
    assert_eq!(ran.stdout(), "1\n", "{ran:#?}");
    let warnings = ran.get("meta.warnings").to_string();
    for told in [
        "stuck.py: it was not loaded within 10s",
        "pipe.py: it cannot be read: it is not a regular file",
    ] {
        assert!(warnings.contains(told), "{warnings}");
    }
    world.close();
}

#[test]
fn all_functions_are_listed() {
    let dir = Dir::new();
    let many: String = (0..60).map(|at| format!("    def f{at}(self): pass\n")).collect();
    put(&dir, "many.py", &format!("class Many:\n{many}"));
    let skills = |args: &[&str]| dir.run([&["skills"], args, &["--skills", "skills"]].concat());
    assert_eq!(skills(&["ls"]).ok().lines().count(), 60);
    let none = skills(&["ls", "nothing"]);
    assert_eq!(
        (none.ok(), none.stderr.as_str()),
        ("", "note: no function fits\n")
    );
    let mut call = dir.command(["skills", "call", "Many.f1", "-", "--skills", "skills"]);
    assert_eq!(finish(&mut call, b"{}").ok(), "null\n");
}

#[test]
fn a_file_with_too_many_functions_is_left_out_and_no_other() {
    let dir = Dir::new();
    let many = |count: usize| -> String {
        (0..count)
            .map(|at| format!("    def f{at}(self): pass\n"))
            .collect()
    };
    put(&dir, "many.py", &format!("class Many:\n{}", many(257)));
    put(&dir, "most.py", &format!("class Most:\n{}", many(256)));
    put(&dir, "other.py", "class Other:\n    def get(self): pass\n");
    let listed = dir.run(["skills", "ls", "--skills", "skills"]);
    assert_eq!(listed.ok().lines().count(), 257, "{listed:?}");
    assert!(listed.ok().contains("Other.get()\n"), "{listed:?}");
    assert_eq!(
        listed.stderr,
        "warning: many.py: it offers 257 functions, and 256 is the limit of a file: make several of it\n"
    );
}

#[test]
fn a_mount_that_is_not_there_is_told_with_its_manifest() {
    let dir = Dir::new();
    let skill =
        "import os\nclass Keys:\n    def all(self) -> list[str]:\n        return os.listdir('/data')\n";
    put(&dir, "keys.py", skill);
    put(&dir, "keys.toml", "mounts = ['keys:/data']\n");
    let call = || dir.run(["skills", "call", "Keys.all", "--skills", "skills"]);
    let listed = dir.run(["skills", "ls", "--skills", "skills"]);
    let told = "warning: keys.py: there is no `keys` in the directory of skills, and `mounts` of keys.toml asks for it \
                (`keys:/data`): make this directory, or take it out of keys.toml\n";
    assert!(listed.stderr.starts_with(told), "{listed:?}");
    call().refused(125, "not found");
    std::fs::create_dir(dir.path("work/skills/keys")).unwrap();
    assert_eq!(call().ok(), "[]\n");
}

#[test]
fn nothing_that_a_skill_says_reaches_the_terminal_as_more_than_text() {
    let dir = Dir::new();
    put(
        &dir,
        "loud.py",
        "class Loud:\n    def a(self):\n        '\\x1b]0;title\\x07'\n",
    );
    for command in [&["ls"][..], &["describe", "Loud.a"]] {
        let told = dir.run([&["skills"], command, &["--skills", "skills"]].concat());
        assert!(
            told.ok().contains("]0;title") && !told.stdout.contains('\x1b'),
            "{told:?}"
        );
    }
}

#[test]
fn a_rule_for_nothing_is_told() {
    let dir = Dir::new();
    put(&dir, "one.py", "class One:\n    def get(self): pass\n");
    put(
        &dir,
        "one.toml",
        "[policy]\n'One.gett' = 'ask'\n'One.*' = 'notify'\n",
    );
    let listed = dir.run(["skills", "ls", "--skills", "skills"]);
    assert_eq!(listed.ok(), "One.get()  [notify]\n");
    assert!(
        listed
            .stderr
            .contains("one.py: its manifest has a rule for `One.gett`"),
        "{listed:?}"
    );
}

#[test]
fn its_author_finds_what_a_skill_printed_and_where_it_failed() {
    let world = World::here();
    let skill = "class Talk:\n    def fail(self):\n        print('half way')\n        return {}['missing']\n";
    put(&world.dir, "talk.py", skill);
    let code = "try: device.Talk.fail()\nexcept RuntimeError as error: print(error)";
    let ran = run(&world, &[], code);
    assert_eq!(ran.stdout(), "Talk.fail: KeyError: 'missing'\n", "{ran:#?}");
    let kept = || std::fs::read_to_string(world.dir.path("state/ringfence/skills/talk.log")).unwrap();
    for told in [
        "half way\n",
        "line 4, in fail\n    return {}['missing']\n",
        "KeyError: 'missing'\n",
    ] {
        assert!(kept().contains(told), "{told}: {}", kept());
    }
    put(&world.dir, "talk.py", "import nothing\n");
    put(&world.dir, "my-talk.py", skill);
    let ran = run(&world, &[], "dir(device)");
    let warnings = ran.get("meta.warnings").to_string();
    assert!(
        warnings.contains("my-talk.py: a file of skills has a name of"),
        "{warnings}"
    );
    assert!(
        kept().contains("line 1, in <module>\n    import nothing\n") && !kept().contains("half way"),
        "{}",
        kept()
    );
    world.close();
}

const SHARED: &str = r#"
import dataclasses

@dataclasses.dataclass
class Point:
    x: int
    y: int = 0

class NotASkill:
    def get(self): pass

def word() -> str:
    return "one"
"#;

#[test]
fn files_import_what_lies_beside_them_and_see_it_change() {
    let world = World::here();
    let skill = "
from _shared import NotASkill, Point, word
from tools.deep import text
import tools

class Uses:
    def word(self) -> str:
        return f'{word()} {text.LOUD} {tools.__name__}'

    def move(self, point: Point) -> Point:
        return Point(point.x + 1)

    def late(self) -> str:
        import _late
        return _late.WORD

    def other(self) -> str:
        import plain
        return plain.Plain().get()

    def private(self) -> str:
        return open('_shared.py').read()
";
    put(&world.dir, "uses.py", skill);
    put(&world.dir, "_shared.py", SHARED);
    put(&world.dir, "_late.py", "raise ValueError('not yet')\n");
    let plain = "class Plain:\n    def get(self) -> str:\n        return 'plain'\n";
    put(&world.dir, "plain.py", plain);
    for directory in ["tools", "tools/deep"] {
        std::fs::create_dir(world.dir.path("work/skills").join(directory)).unwrap();
        put(&world.dir, &format!("{directory}/__init__.py"), "");
    }
    put(&world.dir, "tools/words.py", "LOUD = 'LOUD'\n");
    put(&world.dir, "tools/deep/text.py", "from ..words import LOUD\n");
    let code = "
print(dir(device)[:2], device.Uses.word(), device.Uses.move({'x': 1}))
print(str(device.Uses.move.__doc__).splitlines()[-1], __import__('inspect').signature(device.Uses.move))
for act in (device.Uses.late, device.Uses.other, device.Uses.private):
    try:
        print(act())
    except RuntimeError as error:
        print(error)
";
    let ran = run(&world, &[], code);
    let expected = "['Plain', 'Uses'] one LOUD tools {'x': 2, 'y': 0}\n\
                    Point: {'x': int, 'y': int (optional)} (point: Point) -> Point\n\
                    Uses.late: ValueError: not yet\n\
                    Uses.other: ModuleNotFoundError: No module named 'plain'\n\
                    Uses.private: FileNotFoundError: [Errno 2] No such file or directory: '_shared.py'\n";
    assert_eq!(ran.stdout(), expected, "{ran:#?}");
    put(&world.dir, "_shared.py", &SHARED.replace("\"one\"", "\"two\""));
    put(&world.dir, "_late.py", "WORD = 'late'\n");
    put(&world.dir, "_long.py", &"#".repeat(200_000));
    let ran = run(&world, &[], "print(device.Uses.word(), device.Uses.late())");
    assert_eq!(ran.stdout(), "two LOUD tools late\n", "{ran:#?}");
    let warnings = ran.get("meta.warnings").to_string();
    assert!(
        warnings.contains("_long.py cannot be imported: it is longer than"),
        "{warnings}"
    );
    world.close();
}

#[test]
fn a_process_that_lives_is_started_anew_when_what_it_imports_changes() {
    let world = World::here();
    put(&world.dir, "_shared.py", SHARED);
    let skill = "from _shared import word\nclass Uses:\n    def word(self) -> str:\n        return word()\n";
    put(&world.dir, "uses.py", skill);
    let path = world.dir.path("work/skills");
    let config = format!("[skills]\npath = '{}'\n", path.display());
    world.dir.write("config/ringfence/ringfence.toml", config);
    let mut client = Client::greeted(&world, &[]);
    let word = |client: &mut Client| {
        let told = client.python("print(device.Uses.word())");
        told.lines().next().unwrap().to_owned()
    };
    assert_eq!(word(&mut client), "one");
    put(&world.dir, "_shared.py", &SHARED.replace("\"one\"", "\"two\""));
    assert_eq!(word(&mut client), "two");
    client.leave().well();
    world.close();
}
