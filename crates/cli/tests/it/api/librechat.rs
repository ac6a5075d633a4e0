//! LibreChat's Code API: with requests of ours, and with LibreChat's own client.

mod tools;

use serde_json::{Value, json};

use super::keys::Holder;
use super::{BEARER, KEY, Reply, Surface, loopback_address, world};
use crate::world::{World, repository, skip};

const BASE: &str = "/librechat/v1";
const TYPE: &str = "Content-Type: multipart/form-data; boundary=x";

/// Sends a program, and returns its end.
#[track_caller]
fn exec(holder: &Holder, asked: &Value) -> Value {
    holder.ok(&format!("POST {BASE}/exec"), asked)
}

/// Returns a file of an answer, as a request names it.
#[track_caller]
fn file(answer: &Value, name: &str) -> Value {
    let files = answer["files"].as_array().unwrap();
    let found = files.iter().find(|file| file["name"] == name);
    assert!(found.is_some(), "{answer}");
    found.unwrap().clone()
}

fn form(files: &[(&str, &str)]) -> String {
    let parts = files.iter().map(|(name, content)| {
        let name = name.replace('\\', r"\\");
        format!(
            "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n"
        )
    });
    let kind = "--x\r\nContent-Disposition: form-data; name=\"kind\"\r\n\r\nuser\r\n";
    format!("{kind}{}--x--\r\n", parts.collect::<String>())
}

fn upload(holder: &Holder, files: &[(&str, &str)]) -> Reply {
    let headers = [holder.bearer.as_str(), TYPE];
    holder
        .surface
        .ask(&format!("POST {BASE}/upload"), &headers, &form(files))
}

/// Uploads a file, and returns its session and id.
#[track_caller]
fn uploaded(holder: &Holder, name: &str, content: &str) -> (String, String) {
    let reply = upload(holder, &[(name, content)]);
    assert_eq!(reply.status, 200, "{reply:?}");
    let told = reply.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        text(&told["storage_session_id"]),
        text(&told["files"][0]["fileId"]),
    )
}

/// Checks that a request is refused, in the form of the protocol.
#[track_caller]
pub(super) fn refused(reply: &Reply, status: u16, words: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    let told = reply.json();
    assert!(!reply.body.contains(KEY) && !reply.head.contains(KEY));
    if status == 429 {
        assert_eq!(told["error"], "rate_limited", "{reply:?}");
        return;
    }
    assert!(
        told["error"].as_str().is_some_and(|text| text.contains(words)),
        "{reply:?}"
    );
    assert!(
        told["details"].as_str().is_some_and(|text| text.len() > 5),
        "{reply:?}"
    );
}

#[test]
fn files_stay_and_processes_do_not() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    let code = r"
import subprocess, os
subprocess.Popen(['sleep', '1000'])
os.makedirs('sub/__pycache__'); os.makedirs('.cache')
for name in ['a.bin', 'sub/b.txt', 'sub/__pycache__/c', '.cache/d']:
    open(name, 'wb').write(b'\x00\xff' + name.encode())
open('/tmp/gone', 'w').close()
print(os.getcwd())
";
    let made = exec(&holder, &json!({"lang": "py", "code": code}));
    assert_eq!(
        (&made["stdout"], &made["stderr"]),
        (&json!("/mnt/data\n"), &json!("")),
        "{made}"
    );
    assert_eq!(made["files"].as_array().unwrap().len(), 2, "{made}");
    let (first, second) = (file(&made, "a.bin"), file(&made, "sub/b.txt"));
    let session = made["session_id"].as_str().unwrap();
    let is_id = |id: &str| id.len() == 21 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    assert!(is_id(session) && is_id(first["id"].as_str().unwrap()), "{made}");
    // The program's sandbox is gone, with what it has started.
    assert_eq!(holder.ok("GET /v1/sandboxes", &json!({}))["sandboxes"], json!([]));

    // The next one finds the files; what it changes is a new file, what it leaves alone keeps its id.
    let code = "ls /tmp/gone; pgrep sleep; cat sub/b.txt; printf more > a.bin; exit 3";
    let next = exec(
        &holder,
        &json!({"lang": "bash", "code": code, "files": [first, second]}),
    );
    assert!(next["stdout"].as_str().unwrap().ends_with("sub/b.txt"), "{next}");
    assert!(next["stderr"].as_str().unwrap().contains("/tmp/gone"), "{next}");
    assert_eq!(next["run"]["code"], 3);
    assert_eq!(
        (
            &file(&next, "sub/b.txt")["id"],
            &file(&next, "sub/b.txt")["inherited"]
        ),
        (&second["id"], &json!(true))
    );
    let changed = file(&next, "a.bin");
    assert!(
        changed["id"] != first["id"] && changed.get("inherited").is_none(),
        "{next}"
    );
    let removed = exec(
        &holder,
        &json!({"lang": "bash", "code": "rm a.bin", "files": [changed]}),
    );
    assert_eq!(
        (&removed["deleted_files"], &removed["files"]),
        (&json!(["a.bin"]), &json!([]))
    );

    files_are_described_read_and_removed(&holder, session, &[first, second]);
    world.close();
}

#[track_caller]
fn files_are_described_read_and_removed(holder: &Holder, session: &str, files: &[Value; 2]) {
    let [first, second] = files;
    let path = |file: &Value| format!("{}/{}", session, file["id"].as_str().unwrap());
    let listed = holder.ok(&format!("GET {BASE}/files/{session}?detail=summary"), &json!({}));
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let described = holder.ok(
        &format!(
            "GET {BASE}/sessions/{session}/objects/{}",
            second["id"].as_str().unwrap()
        ),
        &json!({}),
    );
    assert_eq!(described["metadata"]["original-filename"], "sub/b.txt");
    assert_eq!(
        (&described["size"], &described["name"]),
        (&json!(11), &json!(path(second)))
    );
    let ask = |line: &str| holder.ask(line, &json!({}));
    let download = format!("GET {BASE}/download/{}", path(second));
    let got = holder.ok(&format!("POST {BASE}/exec"), &json!({"lang": "py", "code": "print(open('sub/b.txt', 'rb').read()[2:].decode())", "files": [second]}));
    assert_eq!(got["stdout"], "sub/b.txt\n");
    let deleted = format!("DELETE {BASE}/files/{}", path(first));
    assert_eq!(ask(&deleted).status, 200);
    refused(&ask(&deleted), 404, "no file");
    assert_eq!(ask(&download.replace("GET", "HEAD")).status, 200);
}

#[test]
fn uploads_are_files_of_a_session() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    let reply = upload(
        &holder,
        &[
            ("a.csv", "1,2\r\n3,4"),
            ("skills/über name.md", "# hi"),
            ("empty", ""),
        ],
    );
    let told = reply.json();
    assert_eq!(
        (&told["message"], &told["succeeded"]),
        (&json!("success"), &json!(3)),
        "{told}"
    );
    let session = told["storage_session_id"].as_str().unwrap();
    assert_eq!(told["session_id"], session);
    let of = |index: usize, name: &str| {
        assert_eq!(told["files"][index]["filename"], name);
        json!({"id": told["files"][index]["fileId"], "session_id": session, "name": name})
    };
    let files = [of(0, "a.csv"), of(1, "skills/über name.md"), of(2, "empty")];
    let code = "cat a.csv; echo; cat skills/*; wc -c < empty";
    let ran = exec(&holder, &json!({"lang": "bash", "code": code, "files": files}));
    assert_eq!(ran["stdout"], "1,2\r\n3,4\n# hi0\n", "{ran}");
    // Old and new clients name the session by different members.
    let id = told["files"][0]["fileId"].as_str().unwrap();
    let read = holder.ask(&format!("GET {BASE}/download/{session}/{id}"), &json!({}));
    assert_eq!((read.status, read.body.as_str()), (200, "1,2\r\n3,4"));
    assert!(read.head.contains("content-disposition: attachment"), "{read:?}");

    for name in ["../a", "a/../../b", "/etc/passwd", ".main.py", "a//b", "a\\b", ""] {
        let name = format!(
            "{name}{}",
            if name.is_empty() {
                "a".repeat(300)
            } else {
                String::new()
            }
        );
        refused(
            &upload(&holder, &[("fine", ""), (&name, "x")]),
            400,
            "expected a relative path",
        );
        let asked = json!({"lang": "bash", "code": "true", "files": [{"id": id, "session_id": session, "name": name}]});
        refused(
            &holder.ask(&format!("POST {BASE}/exec"), &asked),
            400,
            "expected a relative path",
        );
    }
    refused(&upload(&holder, &[]), 400, "1 to 200 parts");
    let many: Vec<(String, &str)> = (0..201).map(|number| (number.to_string(), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    refused(&upload(&holder, &many), 400, "1 to 200 parts");
    assert_eq!(upload(&holder, &many[..200]).status, 200);

    let sized = |bytes: usize| {
        holder.surface.ask(
            &format!("POST {BASE}/upload/batch"),
            &[&holder.bearer, TYPE],
            &form(&[("a", &"x".repeat(bytes))]),
        )
    };
    assert_eq!(sized((32 << 20) - 1024).status, 200);
    // Refused before it is sent.
    let announced = format!("Content-Length: {}", (32 << 20) + 1);
    let headers = [holder.bearer.as_str(), TYPE, &announced];
    let large = holder
        .surface
        .ask(&format!("POST {BASE}/upload/batch"), &headers, "");
    refused(&large, 413, "larger");
    let untyped = holder
        .surface
        .ask(&format!("POST {BASE}/upload"), &[&holder.bearer], "{}");
    refused(&untyped, 415, "media type");
    world.close();
}

#[test]
fn other_languages_are_refused_by_name_and_limits_are_told() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    let ask = |asked: &Value| holder.ask(&format!("POST {BASE}/exec"), asked);
    assert_eq!(
        exec(
            &holder,
            &json!({"lang": "js", "code": "console.log(process.argv[2])", "args": ["a b"]})
        )["stdout"],
        "a b\n"
    );
    let typed = ask(&json!({"lang": "ts", "code": "const a: number = 4; console.log(a)"}));
    match typed.status {
        200 => assert_eq!(typed.json()["stdout"], "4\n"),
        _ => refused(&typed, 400, "there is no language `ts` here"),
    }
    refused(
        &ask(&json!({"lang": "rs", "code": ""})),
        400,
        "there is no language `rs` here",
    );
    refused(&ask(&json!({"lang": "py"})), 422, "does not match the schema");
    let late = exec(
        &holder,
        &json!({"lang": "py", "code": "print(1, flush=True)\nwhile True: pass", "timeout": 300}),
    );
    assert_eq!(
        (&late["stdout"], &late["run"]["code"]),
        (&json!("1\n"), &Value::Null)
    );
    assert!(
        late["stderr"].as_str().unwrap().contains("Time limit exceeded"),
        "{late}"
    );
    let much = exec(&holder, &json!({"lang": "py", "code": "print('x' * (3 << 20))"}));
    assert!(much["stderr"].as_str().unwrap().contains("the output was cut"));
    assert!(much["stdout"].as_str().unwrap().len() < 2 << 20);
    // A link of the program's leads to no file that is kept, nor does a device.
    let code = "ln -s /etc/passwd link; mkfifo pipe; echo a > real";
    let made = exec(&holder, &json!({"lang": "bash", "code": code}));
    assert_eq!(made["files"].as_array().unwrap().len(), 1, "{made}");
    world.close();
}

/// A result is not lost for what a program has left.
#[test]
fn files_that_cannot_be_kept_are_told() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    let (session, id) = uploaded(&holder, "given", "theirs");
    let code = r"
import os
print('done')
os.makedirs('/'.join('d' * 10) + '/x'); os.mkdir('closed'); os.makedirs('.cache/closed')
for name in ['kept', 'a', 'closed/b', 'tab\there', b'\xff', '/'.join('d' * 10) + '/deep']:
    open(name, 'w').write('text')
for name in ['a', 'given', 'closed', '.cache/closed']:
    os.chmod(name, 0)
";
    let input = json!({"id": id, "storage_session_id": session, "name": "given"});
    let made = exec(&holder, &json!({"lang": "py", "code": code, "files": [input]}));
    let stderr = made["stderr"].as_str().unwrap();
    assert_eq!(made["stdout"], "done\n", "{made}");
    // `a` and `closed`; the names with a tab and of bytes, and two entries on the 11th level.
    assert!(stderr.contains("cannot be read: 2\n"), "{stderr}");
    assert!(stderr.contains("or backslashes: 4\n"), "{stderr}");
    assert_eq!(made["files"].as_array().unwrap().len(), 2, "{made}");
    assert_eq!(file(&made, "given")["inherited"], true);
    assert_eq!(made.get("deleted_files"), None, "{made}");
    file(&made, "kept");
    // The directory itself.
    let made = exec(
        &holder,
        &json!({"lang": "bash", "code": "echo a > a; chmod 0 /mnt/data; echo done"}),
    );
    assert_eq!(
        (&made["stdout"], &made["run"]["code"]),
        (&json!("done\n"), &json!(0)),
        "{made}"
    );
    assert!(
        made["stderr"].as_str().unwrap().contains("cannot be read: 1\n"),
        "{made}"
    );

    let killed = exec(
        &holder,
        &json!({"lang": "py", "code": "import os; os.kill(os.getpid(), 9)"}),
    );
    assert_eq!(
        (&killed["run"]["code"], &killed["run"]["signal"]),
        (&json!(-9), &json!("SIGKILL"))
    );
    world.close();
}

#[test]
fn other_paths_are_refused() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    let ask = |line: &str| holder.ask(line, &json!({}));
    refused(&ask(&format!("GET {BASE}/nothing")), 404, "nothing at this path");
    refused(&ask(&format!("GET {BASE}/exec")), 405, "other methods");
    let health = holder.surface.ask(&format!("GET {BASE}/health"), &[], "");
    assert_eq!(health.status, 200);
    world.close();
}

#[test]
fn a_session_is_its_tenants_alone() {
    let world = world();
    let [owner, colleague] = [(); 2].map(|()| Holder::new(&world, &["--tenant", "team"]));
    let stranger = Holder::new(&world, &["--tenant", "others"]);
    let limited = Holder::new(&world, &["--tenant", "team", "--rights", "run"]);
    let (session, id) = uploaded(&owner, "a.txt", "theirs");
    let input = json!({"id": id, "storage_session_id": session, "name": "a.txt"});
    let asked = json!({"lang": "bash", "code": "cat a.txt", "files": [input]});
    let lines = [
        format!("GET {BASE}/download/{session}/{id}"),
        format!("GET {BASE}/files/{session}"),
        format!("GET {BASE}/sessions/{session}/objects/{id}"),
        format!("POST {BASE}/exec"),
        format!("DELETE {BASE}/files/{session}/{id}"),
    ];
    for line in &lines {
        refused(&stranger.ask(line, &asked), 404, "there is no session");
        refused(&limited.ask(line, &asked), 403, "the right `sandboxes`");
        let ask = |headers: &[&str]| owner.surface.ask(line, headers, &asked.to_string());
        refused(&ask(&[]), 401, "no key");
        refused(&ask(&["X-API-Key: wrong"]), 401, "no key");
        refused(
            &ask(&[&owner.bearer, "Origin: http://page.test"]),
            403,
            "another site",
        );
        refused(&ask(&[&owner.bearer, "Host: page.test"]), 421, "another host");
    }
    let (foreign, other) = uploaded(&stranger, "a.txt", "mine");
    let wrong = json!({"lang": "bash", "code": "cat a.txt", "files": [{"id": id, "session_id": foreign, "name": "a.txt"}]});
    refused(&stranger.ask(&lines[3], &wrong), 404, "there is no file");
    for line in [
        format!("GET {BASE}/download/..%2f..%2fetc/passwd"),
        format!("GET {BASE}/download/{session}/..%2f{id}"),
    ] {
        refused(&owner.ask(&line, &json!({})), 404, "there is no");
    }
    // All that is refused to others works for the owner, and for another key of the tenant.
    for line in &lines[..4] {
        for holder in [&owner, &colleague] {
            assert_eq!(holder.ask(line, &asked).status, 200, "{line}");
        }
    }
    let key = owner.bearer.replace("Authorization: Bearer", "X-API-Key:");
    assert_eq!(
        owner.surface.ask(&lines[3], &[&key], &asked.to_string()).json()["stdout"],
        "theirs"
    );
    assert_eq!(colleague.ask(&lines[4], &asked).status, 200);
    refused(&owner.ask(&lines[0], &asked), 404, "there is no session");

    // With the last key of a tenant go its sessions.
    world.dir.run(["keys", "revoke", &stranger.id]).ok();
    refused(&stranger.ask(&lines[1], &asked), 401, "no key");
    world.dir.run(["keys", "rm", &stranger.id]).ok();
    let heir = Holder::new(&world, &["--tenant", "others"]);
    refused(
        &heir.ask(&format!("GET {BASE}/download/{foreign}/{other}"), &asked),
        404,
        "there is no session",
    );
    world.close();
}

#[test]
fn programs_are_counted_recorded_and_end_with_their_client() {
    let world = world();
    let holder = Holder::new(&world, &["--quota-runs", "2"]);
    let endless = json!({"lang": "py", "code": "print('here', 4711)\nwhile True: pass"}).to_string();
    let connection = holder
        .surface
        .send(&format!("POST {BASE}/exec"), &[&holder.bearer], &endless);
    let sandboxes = || {
        holder.ok("GET /v1/sandboxes", &json!({}))["sandboxes"]
            .as_array()
            .unwrap()
            .len()
    };
    while sandboxes() == 0 {}
    drop(connection);
    while sandboxes() > 0 {}
    exec(&holder, &json!({"lang": "py", "code": "print(1)"}));
    let beyond = holder.ask(
        &format!("POST {BASE}/exec"),
        &json!({"lang": "py", "code": "print(2)"}),
    );
    let told = beyond.json();
    assert_eq!(
        (beyond.status, &told["error"]),
        (429, &json!("rate_limited")),
        "{beyond:?}"
    );
    assert!(
        told["retry_after_seconds"]
            .as_u64()
            .is_some_and(|seconds| seconds > 0),
        "{beyond:?}"
    );
    let records = crate::audit::records(&world.dir);
    let has = |outcome: &str, text: &str| {
        let is = |record: &&Value| record["tool"] == "sandbox.run" && record["outcome"] == outcome;
        records
            .iter()
            .filter(is)
            .any(|record| record.to_string().contains(text))
    };
    assert!(
        has("answered", "print(1)") && has("cancelled", BASE),
        "{records:?}"
    );
    world.close();
}

#[test]
fn librechats_own_client_works_as_it_is() {
    let modules = repository("target/librechat-node/node_modules");
    if !modules.exists() {
        return skip("no target/librechat-node (`cargo xtask setup` makes it)").unwrap_or_default();
    }
    let world = world();
    let surface = Surface::loopback(&world);
    assert_eq!(
        surface.ask(&format!("GET {BASE}/health"), &[BEARER], "").status,
        200
    );
    let output = run_client(&world, &modules.canonicalize().unwrap());
    assert_eq!(output, "all\n");
    assert!(!world.engine_log().contains(KEY));
    world.close();
}

fn run_client(world: &World, modules: &std::path::Path) -> String {
    let script = std::path::absolute(repository("crates/cli/tests/it/api/librechat_client.cjs")).unwrap();
    let mut client = world.dir.program("node");
    let output = client
        .arg(script)
        .arg(modules)
        .arg(loopback_address(world).to_string())
        .arg(KEY)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}
