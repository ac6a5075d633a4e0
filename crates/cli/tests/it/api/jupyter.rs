//! Jupyter's protocol for kernels: with a WebSocket of the tests, and with third-party clients.

use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::keys::Holder;
use super::{BEARER, KEY, Reply, Surface, loopback_address, world};
use crate::world::{World, repository, skip};

const KERNELS: &str = "/jupyter/api/kernels";

/// A client at the channels of a kernel.
struct Notebook {
    socket: WebSocket<TcpStream>,
    sent: usize,
}

impl Notebook {
    fn open(world: &World, kernel: &str, bearer: &str) -> Self {
        let address = loopback_address(world);
        let url = format!("ws://{address}{KERNELS}/{kernel}/channels?session_id=a");
        let mut request = url.into_client_request().unwrap();
        let value = bearer.split_once(": ").unwrap().1.replace("KEY", KEY);
        request
            .headers_mut()
            .insert("Authorization", value.parse().unwrap());
        let stream = TcpStream::connect(address).unwrap();
        let socket = tungstenite::client(request, stream).unwrap().0;
        Self { socket, sent: 0 }
    }

    /// Sends a request, and returns its id.
    fn send(&mut self, channel: &str, kind: &str, content: Value) -> String {
        self.sent += 1;
        let id = format!("message-{}", self.sent);
        let message = json!({
            "header": {"msg_id": id, "msg_type": kind, "session": "a", "username": "u", "date": "", "version": "5.3"},
            "parent_header": {}, "metadata": {}, "channel": channel, "content": content,
        });
        self.socket.send(Message::text(message.to_string())).unwrap();
        id
    }

    fn execute(&mut self, code: &str) -> String {
        self.send(
            "shell",
            "execute_request",
            json!({"code": code, "allow_stdin": false}),
        )
    }

    /// Returns the next message; `None` at the end of the connection.
    fn next(&mut self) -> Option<Value> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Ping(_)) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Returns the messages of a request until the kernel is idle again and has replied.
    fn answers(&mut self, id: &str) -> Vec<Value> {
        let (mut answers, mut idle, mut replied) = (Vec::new(), false, false);
        while !(idle && replied) {
            let message = self.next().unwrap();
            if message["parent_header"]["msg_id"] == id {
                idle |= message["content"]["execution_state"] == "idle";
                replied |= message["msg_type"].as_str().unwrap().ends_with("_reply");
                answers.push(message);
            }
        }
        answers
    }

    fn run(&mut self, code: &str) -> Vec<Value> {
        let id = self.execute(code);
        self.answers(&id)
    }
}

/// Returns the contents of the messages of a kind.
fn contents<'a>(messages: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let of_kind = messages.iter().filter(|message| message["msg_type"] == kind);
    of_kind.map(|message| &message["content"]).collect()
}

fn reply(messages: &[Value]) -> &Value {
    contents(messages, "execute_reply")[0]
}

fn printed(messages: &[Value]) -> String {
    let texts = contents(messages, "stream");
    texts
        .iter()
        .map(|content| content["text"].as_str().unwrap())
        .collect()
}

/// Creates a kernel, and returns its id.
fn create(ask: impl Fn(&str, &Value) -> Reply, new: &Value) -> String {
    let reply = ask(&format!("POST {KERNELS}"), new);
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn cells_share_an_interpreter_and_show_what_cannot_act() {
    let world = world();
    let surface = Surface::loopback(&world);
    let ask = |line: &str, body: &Value| surface.ask(line, &[BEARER], &body.to_string());
    let id = create(ask, &json!({"name": "python3", "env": {"PLACE": "here"}}));
    assert_eq!(id.split('-').map(str::len).collect::<Vec<_>>(), [4; 5]);
    let mut notebook = Notebook::open(&world, &id, BEARER);

    let told = notebook.run("import os\nprint(os.environ['PLACE'])\nx = 20");
    assert_eq!(printed(&told), "here\n");
    assert_eq!(
        (&reply(&told)["status"], &reply(&told)["execution_count"]),
        (&json!("ok"), &json!(1))
    );
    let kinds: Vec<&str> = told
        .iter()
        .map(|message| message["msg_type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["status", "execute_input", "stream", "execute_reply", "status"]
    );
    let told = notebook.run("x + 22");
    assert_eq!(
        contents(&told, "execute_result")[0]["data"],
        json!({"text/plain": "42"})
    );
    assert_eq!(contents(&told, "execute_result")[0]["execution_count"], 2);

    // Neither scripts nor what a terminal obeys reach a front end, and what is left out is named.
    let told =
        notebook.run("display({'text/html': '<script>', 'text/plain': 'a\\x1b]52;c;AA\\x07b'}, raw=True)");
    let shown = contents(&told, "display_data")[0];
    assert_eq!(shown["data"], json!({"text/plain": "a]52;c;AAb"}));
    assert_eq!(shown["metadata"]["ringfence"]["left_out"], json!(["text/html"]));

    displays_are_updated(&mut notebook);
    let told = notebook.run("def f():\n    raise ValueError('no\\x1b[2J')\nf()");
    let error = contents(&told, "error")[0];
    assert_eq!(
        (&error["ename"], &error["evalue"]),
        (&json!("ValueError"), &json!("no"))
    );
    assert!(error["traceback"].to_string().contains("<cell 7>"), "{error}");
    assert_eq!(
        (&reply(&told)["status"], printed(&told)),
        (&json!("error"), String::new())
    );
    let records = crate::audit::records(&world.dir);
    let has = |record: &Value| {
        record["tool"] == "sandbox.run" && record["arguments"].to_string().contains("x + 22")
    };
    assert!(records.iter().any(has), "{records:?}");
    world.close();
}

fn displays_are_updated(notebook: &mut Notebook) {
    let told = notebook.run("%matplotlib inline\nh = display(1, display_id='a')\ndisplay(2)\nh.update(3)");
    let shown: Vec<_> = contents(&told, "display_data");
    assert_eq!(
        (&shown[0]["transient"], &shown[1]["transient"]),
        (&json!({"display_id": "a"}), &json!({}))
    );
    assert_eq!(shown[0]["data"], json!({"text/plain": "3"}));
    // An earlier cell's display is updated where it is.
    let told = notebook.run("h.update(4)\nh.update({'<b>'})");
    let updates: Vec<_> = contents(&told, "update_display_data");
    assert_eq!(updates.len(), 1, "{told:?}");
    assert_eq!(updates[0]["transient"], json!({"display_id": "a"}));
    assert_eq!(updates[0]["data"], json!({"text/plain": "{'<b>'}"}));
    // A mark that a guest made up is none.
    let forged = "display({'text/plain': '', 'application/vnd.ringfence.display+json': {'id': 1, 'update': True}}, raw=True)";
    let told = notebook.run(forged);
    assert_eq!(contents(&told, "display_data")[0]["transient"], json!({}));
}

#[test]
fn questions_about_code_are_answered() {
    let world = world();
    let surface = Surface::loopback(&world);
    let ask = |line: &str, body: &Value| surface.ask(line, &[BEARER], &body.to_string());
    let id = create(ask, &json!({"name": "python3"}));
    let mut notebook = Notebook::open(&world, &id, BEARER);
    notebook.run("import os\nx = 20");
    let asked = [
        (
            "complete_request",
            json!({"code": "os.path.joi", "cursor_pos": 11}),
        ),
        (
            "inspect_request",
            json!({"code": "os.getcwd", "cursor_pos": 9, "detail_level": 0}),
        ),
        ("is_complete_request", json!({"code": "for x in y:"})),
        ("kernel_info_request", json!({})),
    ];
    let [completed, inspected, is_complete, info] = asked.map(|(kind, content)| {
        let id = notebook.send("shell", kind, content);
        let told = notebook.answers(&id);
        contents(&told, &kind.replace("request", "reply"))[0].clone()
    });
    assert_eq!(
        (&completed["matches"], &completed["cursor_start"]),
        (&json!(["join"]), &json!(8))
    );
    assert!(
        inspected["data"]["text/plain"]
            .as_str()
            .unwrap()
            .contains("Signature"),
        "{inspected}"
    );
    assert_eq!(is_complete, json!({"status": "incomplete", "indent": "    "}));
    assert_eq!(info["language_info"]["name"], "python");
    let expressions = json!({"code": "", "user_expressions": {"a": "x * 2", "b": "1/0"}});
    let id = notebook.send("shell", "execute_request", expressions);
    let told = notebook.answers(&id);
    let values = &reply(&told)["user_expressions"];
    assert_eq!(values["a"]["data"]["text/plain"], "40");
    assert_eq!(values["b"]["ename"], "ZeroDivisionError");
    world.close();
}

#[test]
fn a_kernel_is_interrupted_restarted_and_ended() {
    let world = world();
    let surface = Surface::loopback(&world);
    let ask = |line: &str, body: &Value| surface.ask(line, &[BEARER], &body.to_string());
    let kernel = create(ask, &json!({}));
    let mut notebook = Notebook::open(&world, &kernel, BEARER);
    notebook.run("x = 1; open('/tmp/kept', 'w').close()");

    // Cells that wait behind one that fails are not run, and the next ones are.
    let endless = notebook.execute("print('begun', flush=True)\nwhile True: pass");
    let behind = notebook.execute("x = 2");
    while printed(&[notebook.next().unwrap()]) != "begun\n" {}
    assert_eq!(
        ask(&format!("GET {KERNELS}/{kernel}"), &json!({})).json()["execution_state"],
        "busy"
    );
    assert_eq!(
        surface
            .ask(&format!("POST {KERNELS}/{kernel}/interrupt"), &[BEARER], "")
            .status,
        204
    );
    let told = notebook.answers(&endless);
    assert_eq!(reply(&told)["ename"], "KeyboardInterrupt", "{told:?}");
    assert_eq!(reply(&notebook.answers(&behind))["status"], "aborted");
    let told = notebook.run("x");
    assert_eq!(contents(&told, "execute_result")[0]["data"]["text/plain"], "1");

    // By a message, from another client, whose requests are its own.
    let mut other = Notebook::open(&world, &kernel, BEARER);
    let endless = notebook.execute("print('again', flush=True)\nwhile True: pass");
    while printed(&[other.next().unwrap()]) != "again\n" {}
    let id = other.send("control", "interrupt_request", json!({}));
    assert_eq!(
        contents(&other.answers(&id), "interrupt_reply")[0]["status"],
        "ok"
    );
    assert_eq!(reply(&notebook.answers(&endless))["status"], "error");

    let restarted = surface.ask(&format!("POST {KERNELS}/{kernel}/restart"), &[BEARER], "");
    assert_eq!(restarted.json()["execution_state"], "idle", "{restarted:?}");
    let told = notebook.run("import os\n('x' in globals(), os.path.exists('/tmp/kept'))");
    let result = contents(&told, "execute_result")[0];
    assert_eq!(
        (&result["data"]["text/plain"], &result["execution_count"]),
        (&json!("(False, True)"), &json!(1))
    );

    a_lost_interpreter_is_replaced(&mut notebook, &surface);

    let id = other.send("control", "shutdown_request", json!({"restart": false}));
    assert_eq!(
        contents(&other.answers(&id), "shutdown_reply")[0]["restart"],
        false
    );
    for client in [&mut notebook, &mut other] {
        let last = std::iter::from_fn(|| client.next()).last().unwrap();
        assert_eq!(last["content"]["execution_state"], "dead");
    }
    surface
        .ask(&format!("GET {KERNELS}/{kernel}"), &[BEARER], "")
        .refused(404, "not_found");
    let sandboxes = surface.ask("GET /v1/sandboxes", &[BEARER], "").json();
    assert_eq!(sandboxes["sandboxes"], json!([]));
    world.close();
}

/// A lost interpreter is told, and the next cell has a new one.
fn a_lost_interpreter_is_replaced(notebook: &mut Notebook, surface: &Surface) {
    let told = notebook.run("os.kill(os.getpid(), 9)");
    assert!(
        reply(&told)["evalue"]
            .as_str()
            .unwrap()
            .contains("the interpreter is lost"),
        "{told:?}"
    );
    assert_eq!(printed(&notebook.run("print(3)")), "3\n");

    // So is one that was removed from outside the kernel.
    let sandboxes = surface.ask("GET /v1/sandboxes", &[BEARER], "").json();
    let contexts = format!(
        "/v1/sandboxes/{}/contexts",
        sandboxes["sandboxes"][0]["id"].as_str().unwrap()
    );
    let context = &surface.ask(&format!("GET {contexts}"), &[BEARER], "").json()["contexts"][0]["id"];
    let remove = format!("DELETE {contexts}/{}", context.as_str().unwrap());
    assert_eq!(surface.ask(&remove, &[BEARER], "").status, 200);
    assert_eq!(reply(&notebook.run("print(4)"))["ename"], "SandboxError");
    assert_eq!(printed(&notebook.run("print(5)")), "5\n");
}

#[test]
fn other_languages_and_all_outputs_are_kernels_of_their_own() {
    let world = world();
    let surface = Surface::loopback(&world);
    let ask = |line: &str, body: &Value| surface.ask(line, &[BEARER], &body.to_string());
    let specs = ask("GET /jupyter/api/kernelspecs", &json!({})).json();
    assert_eq!(specs["default"], "python3");
    let kernel = |name: &str| {
        assert_eq!(specs["kernelspecs"][name]["name"], name);
        Notebook::open(&world, &create(ask, &json!({ "name": name })), BEARER)
    };
    let mut bash = kernel("bash");
    bash.run("cd /tmp; x=4");
    assert_eq!(printed(&bash.run("echo $x $PWD")), "4 /tmp\n");
    let told = bash.run("false");
    assert_eq!(
        (&reply(&told)["ename"], &reply(&told)["evalue"]),
        (&json!("ExitStatus"), &json!("1"))
    );
    let told = kernel("javascript").run("[1, 2].map(x => x * 2)");
    assert_eq!(
        contents(&told, "execute_result")[0]["data"]["text/plain"],
        "[ 2, 4 ]"
    );
    let told = kernel("python3-all-outputs").run("display({'text/html': '<b>'}, raw=True)");
    assert_eq!(contents(&told, "display_data")[0]["data"]["text/html"], "<b>");
    let unknown = ask(&format!("POST {KERNELS}"), &json!({"name": "julia"}));
    unknown.refused(404, "not_found");
    ask("GET /jupyter/api/kernelspecs/julia", &json!({})).refused(404, "not_found");
    world.close();
}

#[test]
fn a_kernel_is_its_keys_and_ends_with_it() {
    let world = world();
    let (holder, stranger) = (Holder::new(&world, &[]), Holder::new(&world, &[]));
    let kernel = create(|line, body| holder.ask(line, body), &json!({}));
    let mut notebook = Notebook::open(&world, &kernel, &holder.bearer);
    assert_eq!(printed(&notebook.run("print(1)")), "1\n");

    let line = format!("GET {KERNELS}/{kernel}/channels");
    let begin = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let ask = |line: &str, more: &[&str]| holder.surface.ask(line, &[&begin[..], more].concat(), "");
    ask(&line, &[]).refused(401, "unauthenticated");
    ask(&line, &[&holder.bearer, "Origin: http://page.test"]).refused(403, "permission_denied");
    // A key in a URL is none, and the reader is told.
    let key = holder.bearer.rsplit(' ').next().unwrap();
    let in_url = ask(&format!("{line}?token={key}"), &[]);
    in_url.refused(401, "unauthenticated");
    assert!(
        in_url.body.contains("in the URL") && !in_url.body.contains(key),
        "{in_url:?}"
    );
    // As Jupyter's own clients spell it.
    let token = format!("Authorization: token {key}");
    let listed = holder
        .surface
        .ask(&format!("GET {KERNELS}"), &[&token], "")
        .json();
    assert_eq!(listed[0]["id"], kernel.as_str());
    ask(&line, &[&stranger.bearer]).refused(404, "not_found");
    assert_eq!(
        stranger.ask(&format!("GET {KERNELS}"), &json!({})).json(),
        json!([])
    );
    for what in ["GET", "DELETE"] {
        stranger
            .ask(&format!("{what} {KERNELS}/{kernel}"), &json!({}))
            .refused(404, "not_found");
    }
    for what in ["interrupt", "restart"] {
        stranger
            .ask(&format!("POST {KERNELS}/{kernel}/{what}"), &json!({}))
            .refused(404, "not_found");
    }

    let mut wrong = Notebook::open(&world, &kernel, &holder.bearer);
    wrong.socket.send(Message::text("{}")).unwrap();
    loop {
        match wrong.socket.read() {
            Ok(Message::Close(frame)) => {
                assert_eq!(frame.map(|frame| frame.code), Some(CloseCode::Invalid));
                break;
            }
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let mut large = Notebook::open(&world, &kernel, &holder.bearer);
    let _ = large.socket.send(Message::text("x".repeat((1 << 20) + 1)));
    assert_eq!(std::iter::from_fn(|| large.next()).count(), 0);

    notebook.execute("print('begun', flush=True)\nwhile True: pass");
    while printed(&[notebook.next().unwrap()]) != "begun\n" {}
    world.dir.run(["keys", "revoke", &holder.id]).ok();
    while notebook.next().is_some() {}
    // What the key had begun has ended, so that the key can be removed.
    world.dir.run(["keys", "rm", &holder.id]).ok();
    assert!(!world.engine_log().contains(key));
    world.close();
}

#[test]
fn beyond_its_quota_a_key_runs_no_cell() {
    let world = world();
    let holder = Holder::new(&world, &["--quota-runs", "1"]);
    let kernel = create(|line, body| holder.ask(line, body), &json!({}));
    let mut notebook = Notebook::open(&world, &kernel, &holder.bearer);
    assert_eq!(printed(&notebook.run("print(1)")), "1\n");
    let told = notebook.run("print(2)");
    assert_eq!(
        (printed(&told), &reply(&told)["ename"]),
        (String::new(), &json!("limit_exceeded"))
    );
    world.close();
}

#[test]
fn clients_of_jupyter_work_as_they_are() {
    let Ok(venv) = repository("target/adapters-venv").canonicalize() else {
        return skip("no target/adapters-venv (`cargo xtask setup` makes it)").unwrap_or_default();
    };
    let world = world();
    let url = format!("http://{}/jupyter", loopback_address(&world));
    let python = |script: &Path| {
        let mut client = world.dir.program(venv.join("bin/python"));
        let output = client
            .arg(script)
            .arg(&url)
            .env("RINGFENCE_API_KEY", KEY)
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
    };
    let script = |path: &str| std::path::absolute(repository(path)).unwrap();
    assert_eq!(
        python(&script("examples/sdk/jupyter_cells.py")),
        "42\nimage/png\n"
    );
    assert_eq!(
        python(&script("crates/cli/tests/it/api/jupyter_clients.py")),
        "all\n"
    );
    assert!(!world.engine_log().contains(KEY));
    world.close();
}
