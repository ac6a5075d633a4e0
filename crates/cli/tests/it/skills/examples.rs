//! The skills of `examples/skills` work as documented.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use crate::support::{Dir, entries, finish};
use crate::world::{Run, World, repository};

/// Copies the files of a directory of the repository.
fn copy(dir: &Dir, from: &str, to: &str, change: impl Fn(String) -> String) {
    std::fs::create_dir_all(dir.path(to)).unwrap();
    let from = repository(from);
    for name in entries(&from) {
        let path = from.join(&name);
        if path.is_file() {
            let text = std::fs::read_to_string(path).unwrap();
            dir.write(&format!("{to}/{name}"), change(text));
        }
    }
}

#[track_caller]
fn check(world: &World, code: &str, expected: &str) -> Run {
    let run = world.json(["--skills", "skills", "--timeout", "120s", "-c", code]);
    assert_eq!(run.stdout(), expected, "{run:#?}");
    run
}

#[test]
fn a_database_answers_and_cannot_be_changed() {
    let world = World::here();
    copy(&world.dir, "examples/skills", "work/skills", |text| text);
    finish(world.dir.program("python3").arg("skills/_make_shop.py"), b"").ok();
    let code = r#"
print(device.Shop.tables())
print(device.Shop.query("SELECT city, sum(cents) AS cents FROM orders GROUP BY city ORDER BY city"))
print(device.Shop.query("SELECT id FROM orders WHERE city = ?", ["Oslo"], limit=1))
endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "
print(len(device.Shop.query(endless + "i FROM n", limit=10_000)))
for sql in ("DELETE FROM orders", "PRAGMA query_only = OFF", "DROP TABLE orders", endless + "max(i) FROM n"):
    try:
        print(device.Shop.query(sql))
    except RuntimeError as error:
        print(error)
print(len(device.Shop.query("SELECT * FROM orders")))
"#;
    let expected = "{'orders': ['id', 'city', 'cents']}
[{'city': 'Bern', 'cents': 5250}, {'city': 'Lima', 'cents': 100}, {'city': 'Oslo', 'cents': 3000}]
[{'id': 2}]
500
Shop.query: sqlite3.OperationalError: attempt to write a readonly database
[]
Shop.query: sqlite3.OperationalError: attempt to write a readonly database
Shop.query: sqlite3.OperationalError: interrupted
5
";
    check(&world, code, expected);
    world.close();
}

#[test]
fn a_store_keeps_values_from_one_program_to_the_next() {
    let world = World::here();
    copy(&world.dir, "examples/skills", "work/skills", |text| text);
    let place = world.dir.path("work/skills/store");
    std::fs::create_dir(&place).unwrap();
    // On the host its process runs as another user.
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
    let put = "
for key, value in (('b', {'n': [1, 2]}), ('a', 'é')):
    device.Store.put(key, value)
try:
    device.Store.put('long', 'x' * 20_000)
except RuntimeError as error:
    print(error)
print(device.Store.keys(), device.Store.get('c'))
";
    let told = "Store.put: ValueError: a key with its value takes more than 10000 characters\n";
    check(&world, put, &format!("{told}['a', 'b'] None\n"));
    let get = "print(device.Store.get('b'), device.Store.delete('a'), device.Store.keys())";
    check(&world, get, "{'n': [1, 2]} True ['b']\n");
    world.close();
}

#[test]
fn the_weather_comes_from_the_server_of_the_manifest() {
    let world = World::here();
    let (mut server, port) = weather();
    let at = |text: String| text.replace("8008", &port);
    copy(&world.dir, "examples/skills", "work/skills", at);
    let code = "
print(device.Weather.at('Bern'), device.Weather.at('Oslo')['wind'])
try:
    device.Weather.at('Atlantis')
except RuntimeError as error:
    print(error)
";
    let told = "Weather.at: LookupError: no weather for Atlantis (404)";
    check(
        &world,
        code,
        &format!("{{'temperature': 11.5, 'wind': 2.0}} 7.5\n{told}\n"),
    );
    server.kill().unwrap();
    server.wait().unwrap();
    world.close();
}

fn weather() -> (Child, String) {
    let dir = Dir::new();
    let program = std::path::absolute(repository("examples/skills/_weather_server.py")).unwrap();
    let mut command = dir.program("python3");
    command.arg(program).arg("0").stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut port = String::new();
    let mut lines = BufReader::new(server.stdout.take().unwrap());
    lines.read_line(&mut port).unwrap();
    (server, port.trim().to_owned())
}

#[test]
fn an_mcp_server_is_a_skill_like_the_others() {
    let world = World::here();
    let place = repository("examples/skills/servers").canonicalize().unwrap();
    let config = std::fs::read_to_string(place.join("ringfence.toml")).unwrap();
    let config = config.replace("/path/to", &place.display().to_string());
    world.dir.write("config/ringfence/ringfence.toml", config);
    let code = "
print(device.units.convert_length(26.2, 'mi', 'km'))
try:
    device.units.convert_length(1, 'mi', 'parsec')
except TypeError as error:
    print(error)
";
    let run = world.json(["--servers", "--timeout", "120s", "-c", code]);
    let (length, told) = run.stdout().split_once('\n').unwrap();
    assert_eq!(length, "42.1648128", "{run:#?}");
    assert!(told.contains("`to`: \"parsec\" is not one of"), "{run:#?}");
    world.close();
}
