//! Threat: files in `/output` that disturb their collection.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::fence::Fence;
use crate::support::entries;

/// Runs a program that fills `/output`, with `work/out` as the destination.
fn collected(fence: &Fence, options: &[&str], code: &str) -> serde_json::Value {
    fs::create_dir_all(fence.dir.path("work/out")).unwrap();
    fence.result(&[options, &["--output", "out"]].concat(), code)
}

/// The collection has more rights on a mounted directory than the program.
#[test]
fn mounts_below_the_output_are_left() {
    let Some(fence) = Fence::root() else { return };
    fs::create_dir(fence.dir.path("host")).unwrap();
    fence.dir.write("host/secret", "secret");
    let secret = fence.dir.path("host/secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&secret, Some(12345), None).unwrap();
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    let mount = format!("{}:/output/host:ro", fence.dir.path("host").display());
    let code = "open('/output/own', 'w').close()\ntry:\n    open('/output/host/secret')\n\
                except PermissionError as error:\n    print(error.strerror)";
    // Whether the mount is still there depends on the end of the program.
    for _ in 0..5 {
        let result = collected(&fence, &["--mount", &mount], code);
        assert_eq!(result["stdout"], "Permission denied\n", "{result:#}");
        assert_eq!(entries(&fence.dir.path("work/out")), ["own"], "{result:#}");
    }
}

#[test]
fn links_pipes_and_sockets_are_left() {
    let Some(fence) = Fence::root() else { return };
    fence.dir.write("work/secret", "secret");
    let code = format!(
        "import os, socket\n\
         os.chdir('/output')\n\
         open('plain', 'w').write('plain')\n\
         os.symlink('/etc/shadow', 'shadow')\n\
         os.symlink('/etc', 'etc')\n\
         os.symlink('{}', 'secret')\n\
         os.symlink('plain', 'alias')\n\
         os.mkfifo('pipe')\n\
         socket.socket(socket.AF_UNIX).bind('socket')\n\
         os.mkdir('sub'); os.symlink('..', 'sub/up')\n\
         os.mkdir('closed'); open('closed/inner', 'w').close(); os.chmod('closed', 0)",
        fence.dir.path("work/secret").display()
    );
    let result = collected(&fence, &[], &code);
    assert_eq!(result["exit_code"], 0, "{result:#}");
    let files = result["meta"]["output_files"].as_array().unwrap();
    let names: Vec<&str> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert!(
        names == ["plain"] || names == ["closed/inner", "plain"],
        "{names:?}"
    );
    for name in ["shadow", "etc", "secret", "alias", "pipe", "socket"] {
        assert!(
            fence.dir.path("work/out").join(name).symlink_metadata().is_err(),
            "{name}"
        );
        assert!(
            result["meta"]["warnings"].to_string().contains(name),
            "{name}: {result:#}"
        );
    }
    assert_eq!(
        fs::read_to_string(fence.dir.path("work/out/plain")).unwrap(),
        "plain"
    );
    assert_eq!(
        fence.dir.path("work/out/plain").metadata().unwrap().mode() & 0o7000,
        0
    );
}

#[test]
fn names_cannot_lead_out_of_the_directory() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os\nos.chdir('/output')\n\
                for name in ('..x', '-rf', 'new\\nline', '\\x1b[2Jclear', os.fsdecode(b'\\xff'), '.ringfence-plain', 'plain'):\n    \
                    open(name, 'w').write('x')";
    let result = collected(&fence, &[], code);
    assert_eq!(result["exit_code"], 0, "{result:#}");
    assert_eq!(entries(&fence.dir.path("work")), ["out"]);
    assert!(fence.dir.path("work/out/plain").exists());
}

#[test]
fn a_link_in_the_callers_directory_is_not_written_through() {
    let Some(fence) = Fence::root() else { return };
    fs::create_dir(fence.dir.path("work/out")).unwrap();
    fence.dir.write("work/precious", "precious");
    std::os::unix::fs::symlink("../precious", fence.dir.path("work/out/report")).unwrap();
    std::os::unix::fs::symlink("../precious", fence.dir.path("work/out/.ringfence-report")).unwrap();
    collected(&fence, &[], "open('/output/report', 'w').write('new')");
    assert_eq!(
        fs::read_to_string(fence.dir.path("work/precious")).unwrap(),
        "precious"
    );
    assert_eq!(
        fs::read_to_string(fence.dir.path("work/out/report")).unwrap(),
        "new"
    );
}

/// A guest with a writable mount can plant such a link itself.
#[test]
fn a_linked_directory_in_the_callers_directory_is_not_entered() {
    let Some(fence) = Fence::root() else { return };
    fs::create_dir(fence.dir.path("precious")).unwrap();
    let code = format!(
        "import os\n\
         os.symlink('{}', '/w/out/sub')\n\
         os.mkdir('/output/sub')\n\
         open('/output/sub/authorized_keys', 'w').close()",
        fence.dir.path("precious").display()
    );
    let result = collected(&fence, &["--mount", ".:/w:rw"], &code);
    assert_eq!(result["exit_code"], 0, "{result:#}");
    assert_eq!(entries(&fence.dir.path("precious")), [""; 0]);
}

#[test]
fn the_callers_directory_is_the_one_that_was_named() {
    let Some(fence) = Fence::root() else { return };
    fs::create_dir(fence.dir.path("precious")).unwrap();
    let code = format!(
        "import os\n\
         os.rename('/w/out', '/w/moved')\n\
         os.symlink('{}', '/w/out')\n\
         open('/output/authorized_keys', 'w').close()",
        fence.dir.path("precious").display()
    );
    let result = collected(&fence, &["--mount", ".:/w:rw"], &code);
    assert_eq!(result["exit_code"], 0, "{result:#}");
    assert_eq!(entries(&fence.dir.path("precious")), [""; 0]);
}

#[test]
fn sparse_files_do_not_fill_the_host() {
    let Some(fence) = Fence::root() else { return };
    fence
        .dir
        .write("config/ringfence/ringfence.toml", "[sandbox]\ndisk = '8MiB'\n");
    let code = "import os\n\
                for n in range(40):\n    \
                    with open(f'/output/{n}', 'wb') as file: file.truncate(7 << 20)\n\
                try: open('/output/huge', 'wb').truncate(1 << 40)\n\
                except OSError as error: print(error.errno)";
    let result = collected(&fence, &[], code);
    // EFBIG: no file may exceed the whole disk limit.
    assert_eq!(result["stdout"], "27\n", "{result:#}");
    let taken: u64 = entries(&fence.dir.path("work/out"))
        .iter()
        .map(|name| fence.dir.path("work/out").join(name).metadata().unwrap().blocks() * 512)
        .sum();
    assert!(taken <= 8 << 20, "{taken}");
    assert!(
        result["meta"]["warnings"].to_string().contains("disk limit"),
        "{result:#}"
    );
}

#[test]
fn very_many_and_very_deep_files_are_not_all_taken() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os\n\
                for n in range(3000): open(f'/output/{n}', 'w').close()\n\
                os.chdir('/output')\n\
                for n in range(200): os.mkdir('d'); os.chdir('d')";
    let result = collected(&fence, &[], code);
    assert_eq!(result["exit_code"], 0, "{result:#}");
    assert!(entries(&fence.dir.path("work/out")).len() <= 1001);
    assert!(!result["meta"]["warnings"].as_array().unwrap().is_empty());
}
