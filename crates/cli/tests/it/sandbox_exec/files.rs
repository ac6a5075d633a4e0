//! What programs of `sandbox_exec` see of files, and what they leave.

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
        assert_eq!(listed["entries"].as_array().unwrap().len(), 3, "{listed}");
        place
            .world
            .tool(&[], "file_delete", &json!({"path": "/output/a.txt"}));
        assert!(!output.join("a.txt").exists());
        place.close();
    }
}

#[test]
fn what_fills_the_output_directory_is_ended() {
    for place in places("") {
        let code = "head -c 200M /dev/zero > /output/big; sleep 600";
        let ended = place.result(&[], &json!({"language": "bash", "code": code}));
        assert_eq!(ended["exit_code"], -9, "{ended}");
        assert!(
            ended["stderr"].as_str().unwrap().contains("killed: more than"),
            "{ended}"
        );
        place
            .world
            .tool(&[], "file_delete", &json!({"path": "/output/big"}));
        assert_eq!(place.bash("echo again"), "again\n");
        place.close();
    }
}
