//! Threat: without namespaces a guest's directories lie on the host's disk, where it may fill them or confuse
//! their removal.

use super::fence::{Fence, USER};

#[test]
fn the_disk_has_an_end_here_too() {
    for user in [0, USER] {
        let Some(fence) = Fence::container(user) else {
            return;
        };
        fence
            .dir
            .write("config/ringfence/ringfence.toml", "[sandbox]\ndisk = '8MiB'\n");
        // The disk usage is polled; the program keeps running until it is killed.
        let fill = "for n in range(200):\n    open(f'{n}', 'wb').write(bytes(4 << 20))\n\
                    import threading\nthreading.Event().wait(10)\nprint('all')";
        let result = fence.result(&["--timeout", "20s"], fill);
        assert_ne!(result["exit_code"], 0, "{result:#}");
        assert_eq!(result["stdout"], "", "{result:#}");
    }
}

/// Creates a directory too deep for any path: 2,200 levels, whereas a path holds 4,096 bytes.
const DIVE: &str = "import os\n\
                    for _ in range(2200): os.mkdir('d'); os.chdir('d')\n";

/// The removal of a guest's files must not depend on their depth or permissions.
#[test]
fn deep_and_closed_directories_are_removed() {
    for user in [0, USER] {
        let Some(fence) = Fence::container(user) else {
            return;
        };
        let code = format!(
            "{DIVE}os.mkdir('closed'); open('closed/file', 'w').close(); os.chmod('closed', 0)\nprint('done')"
        );
        let result = fence.result(&[], &code);
        assert_eq!(result["stdout"], "done\n", "{result:#}");
        let look = "import os\nprint([name for name in os.listdir('/tmp') if 'ringfence' in name])";
        assert_eq!(fence.outside(look, &[]).ok(), "[]\n", "user {user}");
    }
}

#[test]
fn the_disk_has_an_end_in_the_depth_too() {
    let Some(fence) = Fence::container(USER) else {
        return;
    };
    fence
        .dir
        .write("config/ringfence/ringfence.toml", "[sandbox]\ndisk = '8MiB'\n");
    // The disk usage is polled; the program keeps running until it is killed.
    let fill = "for n in range(100):\n    \
                    open(f'{n}', 'wb').write(bytes(4 << 20))\n\
                import threading\n\
                threading.Event().wait(10)\n\
                print('all')";
    let result = fence.result(&["--timeout", "20s"], &format!("{DIVE}{fill}"));
    assert_ne!(result["exit_code"], 0, "{result:#}");
    assert_eq!(result["stdout"], "", "{result:#}");
    assert_ne!(result["meta"]["outcome"], "timed_out", "{result:#}");
}
