//! Threat: without namespaces a guest's places lie on the host's disk, to be filled, or to be tangled up in.

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
        // What is written is measured now and then; the program stays around to be caught.
        let fill = "for n in range(200):\n    open(f'{n}', 'wb').write(bytes(4 << 20))\n\
                    import threading\nthreading.Event().wait(10)\nprint('all')";
        let result = fence.result(&["--timeout", "20s"], fill);
        assert_ne!(result["exit_code"], 0, "{result:#}");
        assert_eq!(result["stdout"], "", "{result:#}");
    }
}

/// Makes a directory so deep that no path reaches it: 2,200 levels, where a path holds 4,096 bytes.
const DIVE: &str = "import os\n\
                    for _ in range(2200): os.mkdir('d'); os.chdir('d')\n";

/// Removing what a guest has made must not depend on how deep it is, nor on whom it has locked out.
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
    // What is written is measured now and then; the program stays around to be caught.
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
