//! The files that programs of `sandbox_exec` see and leave.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::places;

#[test]
fn a_program_sees_the_workspace_and_nothing_else_of_the_host() {
    let mount = tempfile::tempdir().unwrap();
    let data = mount.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("fixed"), "fixed\n").unwrap();
    for path in [mount.path(), &data] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let keys = format!("volumeMounts = ['{}:/data:ro']", data.display());
    for place in places(&keys) {
        let workspace = place.workspace();
        let secret = place.world.dir.write("secret", "secret");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
        place.world.dir.write("shared/in", "hello\n");
        fs::create_dir(place.world.dir.path("shared/.git")).unwrap();
        let code = format!(
            "cat in /data/fixed; cp in out; pwd\n\
             for file in {secret} /var/run/docker.sock /run/podman/podman.sock {workspace}/in; do ls $file 2> /dev/null; done\n\
             touch /data/x /workspace/.git/x /etc/x /x 2>&1 | grep -c -E 'Read-only|Permission'\n\
             ls /sys/class/net; id -u",
            secret = secret.display()
        );
        let told = place.exec(
            &["--workspace", &workspace],
            &json!({"language": "bash", "code": code}),
        );
        let expected = "hello\nfixed\n/workspace\n4\nlo\n";
        let (seen, user) = told.ok().trim_end().rsplit_once('\n').unwrap();
        assert_eq!(format!("{seen}\n"), expected, "{told:?}");
        assert!(user.parse::<u32>().is_ok(), "{told:?}");
        assert_eq!(
            fs::read_to_string(place.world.dir.path("shared/out")).unwrap(),
            "hello\n"
        );
        assert_eq!(
            fs::read_dir(place.world.dir.path("shared/.git")).unwrap().count(),
            0
        );
        place.close();
    }
}

/// A container that was there before a protected file does not serve calls after it.
#[test]
fn a_file_that_becomes_protected_later_is_read_only() {
    for place in places("") {
        let workspace = place.workspace();
        let write = |code: &str| {
            let arguments = json!({"language": "bash", "code": code});
            place.exec(&["--workspace", &workspace], &arguments)
        };
        let path = place.world.dir.path("shared/.envrc");
        let attempt = "(echo planted > .envrc) 2>&1; cat .envrc";
        let outside = write("echo x > ordinary; cat ordinary");
        assert_eq!(outside.ok().trim_end(), "x", "{outside:?}");
        fs::write(&path, "mine\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let told = write(attempt);
        assert!(told.stdout.contains("Read-only file system"), "{told:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n", "{told:?}");
        // Replaced, it is another file.
        place.world.dir.write("shared/new", "newer\n");
        fs::rename(place.world.dir.path("shared/new"), &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let told = write(attempt);
        assert!(told.stdout.contains("newer"), "{told:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer\n", "{told:?}");
        place.close();
    }
}

#[test]
fn what_is_left_in_output_is_read_by_either_path() {
    for place in places("") {
        let output = place.output(None);
        let code = format!(
            "import os\nopen('/output/a.txt', 'w').write('by the one\\n')\n\
             path = '{}/b.txt'\nopen(path, 'w').write('by the other\\n')\n\
             os.symlink('/etc/passwd', '/output/link')\nprint(path)",
            output.display()
        );
        let result = place.result(&[], &json!({"language": "python", "code": code}));
        let path = result["stdout"].as_str().unwrap().trim_end();
        let files = &result["meta"]["output_files"];
        assert_eq!(
            files
                .as_array()
                .unwrap()
                .iter()
                .map(|file| &file["path"])
                .collect::<Vec<_>>(),
            ["a.txt", "b.txt"]
        );
        let read = |path: &str| place.world.tool(&[], "file_read", &json!({"path": path}));
        for path in [path, "/output/b.txt"] {
            assert_eq!(read(path)["text"], "by the other\n", "{path}");
        }
        assert_eq!(read("/output/a.txt")["text"], "by the one\n");
        assert_eq!(
            read(&output.join("a.txt").display().to_string())["text"],
            "by the one\n"
        );
        for path in [
            "/output/link",
            "/output/../local/a.txt/..",
            "/output/../../../config/ringfence/ringfence.toml",
        ] {
            let refused = read(path);
            assert!(refused["error"].is_object(), "{path}: {refused}");
        }
        let others = place
            .world
            .tool(&["--user", "bob"], "file_read", &json!({"path": path}));
        assert!(others["error"].is_object(), "{others}");
        let listed = place.world.tool(&[], "file_list", &json!({"path": "/output"}));
        // Links are not followed, and stay in the container.
        assert_eq!(listed["entries"].as_array().unwrap().len(), 2, "{listed}");
        place
            .world
            .tool(&[], "file_delete", &json!({"path": "/output/a.txt"}));
        assert!(!output.join("a.txt").exists());
        place.close();
    }
}

/// The disk limit is recognised as the write fails, in every directory that a program may fill.
#[test]
fn what_fills_a_directory_fails_and_the_next_call_deletes_it() {
    for place in places("maxDisk = '4MiB'") {
        for directory in ["/output", "/workspace", "/tmp"] {
            let fill = format!(
                "try: open('{directory}/big', 'wb').write(bytes(9 << 20))\n\
                 except OSError as error: print(error.errno == 28 or error)\n\
                 open('{directory}/more', 'wb', buffering=0).write(bytes(9 << 20))\n\
                 open('{directory}/still-more', 'wb', buffering=0).write(b'x')"
            );
            let full = place.result(&[], &json!({"language": "python", "code": fill}));
            assert_eq!(
                (&full["stdout"], &full["exit_code"]),
                (&"True\n".into(), &1.into()),
                "{full}"
            );
            assert!(
                full["stderr"]
                    .as_str()
                    .unwrap()
                    .contains("No space left on device"),
                "{full}"
            );
            let warning = full["meta"]["warnings"][0].as_str().unwrap();
            assert!(
                warning.contains("hold 4MiB") && warning.contains("`codeExecution.maxDisk`"),
                "{full}"
            );
            assert_eq!(place.bash("echo here"), "here\n");
            let delete = format!("cd {directory}; ls | wc -l; rm -rf ./*; echo again > x; cat x; rm x");
            let deleted = place.bash(&delete);
            let (count, rest) = deleted.split_once('\n').unwrap();
            assert!(
                count.parse::<u32>().unwrap() > 0 && rest == "again\n",
                "{directory}: {deleted}"
            );
        }
        assert_eq!(fs::read_dir(place.output(None)).unwrap().count(), 0);
        place.close();
    }
}

/// Tested under each OCI runtime.
#[test]
fn nothing_makes_the_tool_unusable() {
    for place in places("maxDisk = '4MiB'") {
        let hostile = "cd /output; truncate -s 1T sparse; head -c 2M /dev/zero > a; for n in 1 2 3 4 5; do ln a l$n; done\n\
            mkdir -p $(printf 'd/%.0s' $(seq 40)); mkfifo pipe; ln -s / link; n=0; while : > f$n; do n=$((n + 1)); done 2> /dev/null\n\
            cd /workspace; head -c 9M /dev/zero > big 2> /dev/null; chmod 0 /output/d; echo done";
        let told = place.bash(hostile);
        assert!(told.starts_with("done\n[warning: "), "{told}");
        assert!(told.contains(": sparse does not fit in]"), "{told}");
        let left = place.output(None);
        assert!(!left.join("sparse").exists() && fs::symlink_metadata(left.join("link")).is_err());
        let bytes: u64 = fs::read_dir(&left)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(bytes <= 5 << 20, "{bytes}");
        // A file deleted by a file tool is deleted for programs too.
        place
            .world
            .tool(&[], "file_delete", &json!({"path": "/output/a"}));
        let gone = place.bash("test -e /output/a || echo gone; chmod 700 /output/d; rm -rf /output/* /workspace/*; ls -A /output");
        assert_eq!(gone, "gone\n");
        assert_eq!(fs::read_dir(&left).unwrap().count(), 0);
        place.close();
    }
}

#[test]
fn what_one_container_leaves_the_next_one_has() {
    for place in places("keepAliveMaxExecutions = 2") {
        place.bash("echo one > /output/a; mkdir /output/d; echo two > /output/d/b; chmod 750 /output/a");
        place.bash("echo three >> /output/a");
        let before = place.running();
        assert_eq!(
            place.bash("cat /output/a /output/d/b; stat -c %a /output/a; rm -r /output/d"),
            "one\nthree\ntwo\n750\n"
        );
        assert_ne!(place.running(), before);
        place.world.tool(
            &[],
            "file_write",
            &json!({"path": "/output/new", "content": "by a tool\n"}),
        );
        assert_eq!(place.bash("ls /output; cat /output/new"), "a\nnew\nby a tool\n");
        place.close();
    }
}
