//! Answers and lists as models read them: short texts, pictures, small schemas.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Client, text};
use crate::world::{Mode, Place, World, play};

/// A picture of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn run(client: &mut Client, code: &str) -> Value {
    client.call("run_code", &json!({"code": code}))
}

/// Returns the pictures of an answer.
fn pictures(answer: &Value) -> Vec<&Value> {
    let content = answer["content"].as_array().unwrap();
    content.iter().filter(|block| block["type"] == "image").collect()
}

#[test]
fn the_list_of_tools_is_short() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let list = &client.ask("tools/list", &json!({}))["result"];
    let tools = list["tools"].as_array().unwrap();
    assert!(tools.len() >= 9, "{list}");
    let length = list.to_string().len();
    assert!(length <= 12_000, "{length}");
    println!("tools/list: {length} bytes, {} tools", tools.len());
    client.leave().well();
    world.close();
}

#[test]
fn the_text_of_a_run_is_for_reading_and_its_value_for_programs() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('/output/a.txt', 'w').write('abc')\nsys.exit(3)";
    let answer = run(&mut client, code);
    assert_eq!(
        text(&answer),
        "out\n[stderr]\nerr\n[exit code 3]\n[file /output/a.txt: 3B]"
    );
    assert_eq!(answer["structuredContent"]["exit_code"], 3);
    assert_eq!(
        answer["structuredContent"]["meta"]["isolation"]["seccomp"],
        "fence"
    );

    let arguments = json!({"code": "x = 20\nx * 2 + 2", "session": "s"});
    assert_eq!(text(&client.call("run_code", &arguments)), "[value] 42");

    let listed = client.call("file_list", &json!({"path": "/output"}));
    assert_eq!(text(&listed), "a.txt  3 bytes\n");
    client.leave().well();
    world.close();
}

/// The first program has a cell of the pool, as later ones have, and a session's lasts: each finds the files of the others.
#[test]
fn a_conversation_has_one_output() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let mut told = |arguments: Value| text(&client.call("run_code", &arguments)).to_owned();
    let code =
        "import os\nos.mkdir('/output/d')\nfor n in 'a', 'b', 'd/c':\n    open('/output/' + n, 'w').write(n)";
    assert_eq!(
        told(json!({"code": code})),
        "[file /output/a: 1B]\n[file /output/b: 1B]\n[file /output/d/c: 3B]"
    );
    // What it only read is not told again.
    let code = "cat /output/a /output/d/c; echo bash >> /output/a; echo > /output/d/e; rm /output/b";
    assert_eq!(
        told(json!({"code": code, "language": "bash"})),
        "ad/c\n[file /output/a: 6B]\n[file /output/d/e: 1B]"
    );
    let code =
        "const fs = require('fs'); console.log(fs.readdirSync('/output', {recursive: true}).sort().join())";
    assert_eq!(
        told(json!({"code": code, "language": "javascript"})),
        "a,d,d/c,d/e\n"
    );
    let code = "open('/output/s', 'w').write('s')\nopen('/output/a').read()";
    let session = json!({"code": code, "session": "s"});
    assert_eq!(told(session), "[value] 'abash\\n'\n[file /output/s: 1B]");
    let code = "import os\nos.remove('/output/a')\nos.rename('/output/d', '/output/e')\nprint(open('/output/s').read())";
    assert_eq!(
        told(json!({"code": code})),
        "s\n[file /output/e/c: 3B]\n[file /output/e/e: 1B]"
    );
    let code =
        "import os\nsorted(os.listdir('/output')), os.listdir('/output/d'), os.path.getsize('/output/e/c')";
    let session = json!({"code": code, "session": "s"});
    assert_eq!(told(session), "[value] (['d', 'e', 's'], [], 3)");
    let listed = client.call("file_list", &json!({"path": "/output"}));
    assert_eq!(text(&listed), "d/\ne/\ns  1 bytes\n");
    client.leave().well();
    world.close();
}

#[test]
fn names_are_one_line_in_what_ringfence_says() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let code = "import os\nos.mkfifo('/output/x\\n[exit code 1]')";
    let warning = "[warning: x\\n[exit code 1] is not a regular file and was left]";
    assert_eq!(text(&run(&mut client, code)), warning);
    client.leave();
    world.close();
}

/// Without a pool, by an engine, as another user, and where namespaces are forbidden.
#[test]
fn one_output_holds_wherever_programs_are_started() {
    for (mode, place) in [
        (Mode::OneShot, Place::Here),
        (Mode::Engine, Place::Here),
        (Mode::OneShot, Place::User),
        (Mode::OneShot, Place::Container),
    ] {
        play(World::new(mode, place), |world| {
            let run = |language: &str, code: &str| {
                let answer = world.tool(&[], "run_code", &json!({"code": code, "language": language}));
                let files = answer["meta"]["output_files"].as_array();
                let files = files.into_iter().flatten();
                let paths: Vec<String> = files.map(|file| file["path"].to_string()).collect();
                let stdout = answer["stdout"].as_str();
                assert!(stdout.is_some(), "{answer}");
                format!("{}{}", stdout.unwrap(), paths.join(" "))
            };
            let code = "import os\nos.mkdir('/output/d')\nopen('/output/d/a', 'w').write('python')";
            let environment = "import os\nOUTPUT = os.environ['RINGFENCE_OUTPUT']\n";
            let code = code.replace("'/output", "OUTPUT + '");
            assert_eq!(run("python", &format!("{environment}{code}")), "\"d/a\"");
            let code =
                "cat $RINGFENCE_OUTPUT/d/a; echo bash > $RINGFENCE_OUTPUT/d/b; rm $RINGFENCE_OUTPUT/d/a";
            assert_eq!(run("bash", code), "python\"d/b\"");
            let code = format!(
                "{environment}print(os.listdir(OUTPUT + '/d'), open(OUTPUT + '/d/b').read().strip())"
            );
            assert_eq!(run("python", &code), "['b'] bash\n");
        });
    }
}

#[test]
fn pictures_come_as_images_and_what_is_none_does_not() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let write = |name: &str, bytes: &str| format!("open('/output/{name}', 'wb').write({bytes})\n");
    let png = format!("__import__('base64').b64decode('{PNG}')");
    let answer = run(
        &mut client,
        &(write("dot.png", &png) + &write("text.png", "b'no picture'") + &write("dot.txt", &png)),
    );
    let shown = pictures(&answer);
    assert_eq!(shown.len(), 1, "{answer}");
    assert_eq!(shown[0]["mimeType"], "image/png");
    assert_eq!(shown[0]["data"], PNG);

    // A link is no file of the output directory, wherever it leads.
    let answer = run(
        &mut client,
        "import os\nos.symlink('/etc/hostname', '/output/link.png')",
    );
    assert_eq!(pictures(&answer), [&Value::Null; 0], "{answer}");

    // By their first bytes, whatever they are called.
    let arguments = json!({"code": write("dot.png", "b'no picture'"), "session": "other"});
    let answer = client.call("run_code", &arguments);
    assert_eq!(
        answer["structuredContent"]["meta"]["output_files"][0]["path"],
        "dot.png"
    );
    assert_eq!(pictures(&answer), [&Value::Null; 0], "{answer}");

    let large = format!("{png} + bytes(1 << 20)");
    let answer = run(&mut client, &write("large.png", &large));
    assert_eq!(pictures(&answer), [&Value::Null; 0]);
    let length = (1 << 20) + STANDARD.decode(PNG).unwrap().len();
    let told = text(&answer);
    assert!(
        told.contains(&format!(
            "[/output/large.png has {length}B and is not shown: save it smaller than 1MiB]"
        )),
        "{told}"
    );

    let code = (0..6)
        .map(|n| write(&format!("{n}.png"), &png))
        .collect::<String>();
    let answer = run(&mut client, &code);
    assert_eq!(pictures(&answer).len(), 4, "{answer}");
    assert!(text(&answer).contains("[/output/5.png is not shown: an answer shows 4 pictures]"));

    let display = format!("class Dot:\n    def _repr_png_(self):\n        return {png}\nDot()");
    let answer = client.call("run_code", &json!({"code": display, "session": "s"}));
    assert_eq!(pictures(&answer).len(), 1, "{answer}");
    assert_eq!(client.leave().status, 0);
    world.close();
}
