//! `/mcp` with the official clients: streamable HTTP to the real server.

mod official {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use crate::api::{keys::create, loopback_address, world};
    use crate::mcp::official::{Told, installed, told};
    use crate::world::World;

    const PYTHON: &str = include_str!("clients/over_http.py");
    const TYPESCRIPT: &str = include_str!("clients/over_http.mjs");

    /// Has a client's program run all checks in a mode, and verifies its report.
    fn check(program: &str, name: &str, mode: &str) {
        let world = world();
        let (key, _) = create(&world, &["--rights", "tools"]);
        let url = format!("http://{}/mcp", loopback_address(&world));
        let file = world.dir.write(&format!("work/{name}"), program);
        let mut client = match name {
            "over_http.py" => world.dir.program(installed("target/mcp-venv").join("bin/python")),
            _ => {
                let modules = installed("target/mcp-node").join("node_modules");
                symlink(modules, world.dir.path("work/node_modules")).unwrap();
                world.dir.program("node")
            }
        };
        client.arg(file).args([&url, mode, &key]);
        judge(&told(client, &json!(null)));
        is_recorded(&world, &key);
        world.close();
    }

    fn judge(told: &Told) {
        let greeting = told.get("greeting");
        assert_eq!(greeting["protocol"], "2025-11-25", "{greeting}");
        let instructions = greeting["instructions"].as_str().unwrap();
        assert!(
            instructions.contains("run_python_code") && !instructions.contains("file tools"),
            "{greeting}"
        );
        let names = told.get("tools")["names"].as_array().unwrap();
        assert!(names.contains(&json!("run_code")), "{names:?}");
        for closed in ["shell", "host_exec", "file_read", "file_write"] {
            assert!(!names.contains(&json!(closed)), "{names:?}");
        }
        let code = &told.get("code")["structured"];
        assert_eq!((&code["stdout"], &code["exit_code"]), (&json!("42\n"), &json!(3)));
        told.failed("invalid_arguments", "invalid_arguments");
        let denied = told.get("permission_denied");
        let message = denied["message"].as_str().unwrap();
        assert!(message.contains("`shell` may not be used here"), "{denied}");
        assert_eq!(told.get("unknown")["protocol_error"], -32602);
        let heard = told.get("progress")["heard"].as_array().unwrap();
        let first = heard.first().and_then(|message| message.as_str());
        assert!(
            first.is_some_and(|message| message.contains("half way")),
            "{heard:?}"
        );
        assert_eq!(told.get("two")["right"], true);
        assert_eq!(told.get("closed")["well"], true);
        assert_eq!(told.get("wrong")["refused"], true);
    }

    /// Checks that calls stand in the audit log under their credential, whatever the client calls itself.
    fn is_recorded(world: &World, key: &str) {
        let log = world.dir.run(["audit", "tail", "--json"]);
        let who = format!("\"surface\":\"mcp_http\",\"client\":\"{}\"", &key[..11]);
        assert!(log.ok().contains(&who), "{log:?}");
        assert!(!log.stdout.contains(key));
    }

    #[test]
    fn the_python_client_of_today() {
        check(PYTHON, "over_http.py", "auto");
    }

    #[test]
    fn the_typescript_client() {
        check(TYPESCRIPT, "over_http.mjs", "initialize");
    }
}
