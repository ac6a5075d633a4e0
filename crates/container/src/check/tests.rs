//! Tests the check of outgoing requests.

use serde_json::json;

use super::*;
use crate::testing::spec;

fn create(body: &Value) -> Result<(), Refusal> {
    request(
        &Method::POST,
        "/v1.41/containers/create",
        body.to_string().as_bytes(),
    )
}

/// Returns the create request of a default specification.
fn good() -> Value {
    let spec = spec(&["true"]);
    serde_json::to_value(spec.body(spec.filter.document(), Some(4096))).unwrap()
}

/// Asserts that the request is rejected after `change`, with a message that contains `what`.
fn refused(what: &str, change: impl FnOnce(&mut Value)) {
    let mut body = good();
    change(&mut body);
    let refusal = create(&body).expect_err(what).to_string();
    assert!(refusal.contains(what), "{what}: {refusal}");
}

#[test]
fn a_specification_passes() {
    assert_eq!(create(&good()), Ok(()));
}

#[test]
fn nothing_privileged_goes_out() {
    for (name, value) in [
        ("Privileged", json!(true)),
        ("Privileged", json!(false)),
        ("CapAdd", json!(["SYS_ADMIN"])),
        ("CapDrop", json!(["NET_RAW"])),
        ("PidMode", json!("host")),
        ("PidMode", json!("container:x")),
        ("IpcMode", json!("host")),
        ("IpcMode", json!("shareable")),
        ("UTSMode", json!("host")),
        ("UsernsMode", json!("host")),
        ("CgroupnsMode", json!("host")),
        ("NetworkMode", json!("host")),
        ("NetworkMode", json!("container:x")),
        ("Devices", json!([{"PathOnHost": "/dev/sda"}])),
        ("DeviceRequests", json!([{}])),
        ("DeviceCgroupRules", json!(["c 1:1 rwm"])),
        ("Binds", json!(["/:/host"])),
        ("VolumesFrom", json!(["x"])),
        ("SecurityOpt", json!(["no-new-privileges", "seccomp=unconfined"])),
        ("SecurityOpt", json!(["seccomp=unconfined"])),
        ("SecurityOpt", json!(["no-new-privileges"])),
        ("SecurityOpt", json!(["no-new-privileges", "apparmor=unconfined"])),
        (
            "SecurityOpt",
            json!([
                "no-new-privileges",
                r#"seccomp={"defaultAction":"SCMP_ACT_ALLOW"}"#
            ]),
        ),
        (
            "SecurityOpt",
            json!([
                "no-new-privileges",
                r#"seccomp={"defaultAction":"SCMP_ACT_ERRNO"}"#,
                "label=disable"
            ]),
        ),
        ("ReadonlyRootfs", json!(false)),
        ("Runtime", json!("mine")),
        ("CgroupParent", json!("/")),
        ("MaskedPaths", json!([])),
        ("ReadonlyPaths", json!([])),
        ("Sysctls", json!({"kernel.core_pattern": "|/x"})),
        ("OomScoreAdj", json!(-1000)),
        ("OomKillDisable", json!(true)),
        ("PidsLimit", json!(-1)),
        ("PidsLimit", json!(0)),
        ("Memory", json!(0)),
        ("MemorySwap", json!(-1)),
        ("NanoCpus", json!(0)),
        ("RestartPolicy", json!({"Name": "always"})),
        ("PortBindings", json!({"80/tcp": [{"HostPort": "80"}]})),
        ("GroupAdd", json!(["docker"])),
        ("LogConfig", json!({"Type": "json-file", "Config": {}})),
        (
            "LogConfig",
            json!({"Type": "syslog", "Config": {"syslog-address": "tcp://192.0.2.1"}}),
        ),
        ("Tmpfs", json!({"/tmp": "rw"})),
        ("Tmpfs", json!({"/tmp": "rw,size=1m"})),
        ("SomethingNew", json!(null)),
    ] {
        refused(&format!("`HostConfig.{name}`"), |body| {
            body["HostConfig"][name] = value
        });
    }
}

#[test]
fn nothing_else_is_asked_of_a_container() {
    for (name, value) in [
        ("User", json!("root")),
        ("User", json!("")),
        ("Tty", json!(true)),
        ("Volumes", json!({"/x": {}})),
        ("NetworkingConfig", json!({})),
        ("Healthcheck", json!({"Test": ["CMD", "x"]})),
        ("Env", json!("A=b")),
    ] {
        refused(&format!("`{name}`"), |body| body[name] = value);
    }
}

#[test]
fn no_layer_may_be_left_out() {
    for name in [
        "CapDrop",
        "SecurityOpt",
        "ReadonlyRootfs",
        "NetworkMode",
        "IpcMode",
        "CgroupnsMode",
        "Memory",
        "PidsLimit",
        "NanoCpus",
        "LogConfig",
    ] {
        refused(&format!("without `HostConfig.{name}`"), |body| {
            body["HostConfig"].as_object_mut().unwrap().remove(name);
        });
    }
    refused("in swap", |body| {
        body["HostConfig"]["MemorySwap"] = json!(i64::MAX)
    });
    refused("without `HostConfig`", |body| {
        body.as_object_mut().unwrap().remove("HostConfig");
    });
}

#[test]
fn nothing_of_the_host_is_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("/run", work.join("link")).unwrap();
    let mount = |source: &str| {
        json!({"Type": "bind", "Source": source, "Target": "/x", "ReadOnly": true,
               "BindOptions": {"Propagation": "rprivate", "NonRecursive": true}})
    };
    let with = |mount: Value| {
        let mut body = good();
        body["HostConfig"]["Mounts"] = json!([mount]);
        create(&body)
    };
    assert_eq!(with(mount(work.to_str().unwrap())), Ok(()));
    for source in [
        "/",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/user/1000/podman/podman.sock",
        "/proc",
        "/sys",
        "/dev",
        "/etc",
        "/var/lib/docker",
        "relative",
        "/tmp/../etc",
        work.join("link").to_str().unwrap(),
    ] {
        assert!(with(mount(source)).is_err(), "{source}");
    }
    for (name, value) in [
        ("Propagation", json!("rshared")),
        ("NonRecursive", json!(false)),
        ("CreateMountpoint", json!(true)),
    ] {
        let mut shared = mount(work.to_str().unwrap());
        shared["BindOptions"][name] = value;
        assert!(with(shared).is_err(), "{name}");
    }
    let empty = json!({"NoCopy": true});
    let volume = |source: &str, options: &Value| json!({"Type": "volume", "Source": source, "Target": "/x", "ReadOnly": false, "VolumeOptions": options});
    assert_eq!(with(volume("fw-sandbox-x", &empty)), Ok(()));
    assert!(with(volume("somebody-elses", &empty)).is_err());
    for options in [
        json!({}),
        json!({"NoCopy": false}),
        json!({"NoCopy": true, "Subpath": ".."}),
    ] {
        assert!(with(volume("fw-sandbox-x", &options)).is_err(), "{options}");
    }
    let volume =
        |source: &str| json!({"Type": "volume", "Source": source, "Target": "/x", "ReadOnly": false});
    assert!(with(volume("fw-sandbox-x")).is_err());
    let mut driven = volume("fw-sandbox-x");
    driven["VolumeOptions"] =
        json!({"DriverConfig": {"Name": "local", "Options": {"o": "bind", "device": "/"}}});
    assert!(with(driven).is_err());
    assert!(with(json!({"Type": "npipe", "Source": "/x", "Target": "/x", "ReadOnly": true})).is_err());
}

#[test]
fn a_filter_in_a_file_is_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let with = |text: &str| {
        std::fs::write(file.path(), text).unwrap();
        let mut body = good();
        let path = format!("seccomp={}", file.path().display());
        body["HostConfig"]["SecurityOpt"] = json!(["no-new-privileges", path]);
        create(&body)
    };
    assert_eq!(with(r#"{"defaultAction": "SCMP_ACT_ERRNO"}"#), Ok(()));
    for text in [r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#, "{}", ""] {
        assert!(with(text).is_err(), "{text}");
    }
}

#[test]
fn other_requests_are_looked_at_too() {
    let check = |path: &str, body: Value, allowed: bool| {
        let found = request(&Method::POST, path, body.to_string().as_bytes());
        assert_eq!(found.is_ok(), allowed, "{path} {body}: {found:?}");
    };
    check("/v1.41/containers/x/exec", json!({"Cmd": ["id"]}), true);
    check(
        "/v1.41/containers/x/exec",
        json!({"Cmd": ["id"], "Privileged": true}),
        false,
    );
    check(
        "/v1.41/containers/x/exec",
        json!({"Cmd": ["id"], "User": "root"}),
        false,
    );
    check("/v1.41/containers/x/update", json!({"Memory": 0}), false);
    check("/v1.41/swarm/init", json!({}), false);
    check("/v1.41/plugins/pull", json!([]), false);
}

/// Rejects volumes without a size limit: they could fill the host's disk.
#[test]
fn volumes_lie_in_memory_and_have_a_size() {
    let check = |name: &str, driver: &str, options: Value, allowed: bool| {
        let body = json!({"Name": name, "Driver": driver, "Labels": {}, "DriverOpts": options});
        let found = request(
            &Method::POST,
            "/v1.41/volumes/create",
            body.to_string().as_bytes(),
        );
        assert_eq!(found.is_ok(), allowed, "{body}: {found:?}");
    };
    let tmpfs = |o: &str| json!({"type": "tmpfs", "device": "tmpfs", "o": o});
    let good = "nosuid,nodev,uid=0,gid=0,mode=1777,nr_blocks=1,nr_inodes=64";
    check("fw-sandbox-x", "local", tmpfs(good), true);
    check("x", "local", tmpfs(good), false);
    check("fw-sandbox-x", "nfs", tmpfs(good), false);
    for bad in [
        "",
        "nosuid,nodev,uid=0,gid=0,mode=1777,nr_blocks=1",
        "nosuid,nodev,uid=0,gid=0,mode=1777,nr_inodes=1",
        "nosuid,nodev,uid=0,gid=0,mode=1777,nr_blocks=0,nr_inodes=64",
        "nosuid,nodev,uid=0,gid=0,mode=1777,nr_blocks=1,nr_inodes=0",
        "nosuid,nodev,uid=0,gid=0,mode=1777,nr_blocks=1,nr_blocks=9",
        "nodev,uid=0,gid=0,mode=1777,nr_blocks=1,nr_inodes=64",
        "suid,nosuid,nodev,uid=0,gid=0,mode=1777,nr_blocks=1,nr_inodes=64",
    ] {
        check("fw-sandbox-x", "local", tmpfs(bad), false);
    }
    for bad in [
        json!({}),
        json!({"device": "/"}),
        json!({"type": "none", "device": "/", "o": "bind"}),
        json!({"type": "tmpfs", "device": "/", "o": good}),
        json!({"type": "ext4", "device": "tmpfs", "o": good}),
    ] {
        check("fw-sandbox-x", "local", bad, false);
    }
    let unbound = json!({"Name": "fw-sandbox-x", "Driver": "local", "Labels": {}});
    assert!(
        request(
            &Method::POST,
            "/v1.41/volumes/create",
            unbound.to_string().as_bytes()
        )
        .is_err()
    );
    let mut spec = spec(&["true"]);
    spec.volumes = vec![crate::testing::volume()];
    let body = serde_json::to_value(spec.body(spec.filter.document(), Some(4096))).unwrap();
    assert_eq!(create(&body), Ok(()));
}

#[test]
fn no_health_of_an_image_is_looked_after() {
    for value in [
        json!(null),
        json!({}),
        json!({"Test": ["CMD", "x"]}),
        json!({"Test": []}),
    ] {
        refused("`Healthcheck`", |body| body["Healthcheck"] = value);
    }
    refused("`Healthcheck`", |body| {
        drop(body.as_object_mut().unwrap().remove("Healthcheck"))
    });
}

#[test]
fn only_listed_requests_go_out() {
    let check = |method: Method, path: &str, allowed: bool| {
        assert_eq!(request(&method, path, b"").is_ok(), allowed, "{method} {path}");
    };
    check(Method::GET, "/v1.41/version", true);
    check(Method::DELETE, "/v1.41/containers/x", true);
    check(Method::GET, "/v1.41/images/library/python:3/json", true);
    check(Method::DELETE, "/v1.41/images/x", false);
    check(Method::DELETE, "/v1.41/containers/", false);
    check(Method::POST, "/v1.41/containers/../json", false);
    check(Method::PUT, "/v1.41/containers/x/archive", false);
    check(Method::GET, "/v1.41/secrets", false);
    assert!(request(&Method::POST, "/v1.41/containers/x/start", b"{}").is_err());
    assert!(streamed(&Method::POST, "/v1.41/containers/create").is_err());
    assert_eq!(streamed(&Method::POST, "/v1.41/build"), Ok(()));
}
