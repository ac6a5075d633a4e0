//! Extended attributes of files in a sandbox.

use super::Lab;

/// Sets an attribute of a file in the working directory, and prints it.
const SET: &str = "import os; open('f', 'w').close(); os.setxattr('f', 'user.note', b'seen'); print(os.getxattr('f', 'user.note'))";

#[test]
fn files_of_a_sandbox_have_attributes_and_those_of_a_run_none() {
    let lab = Lab::with_sandbox();
    assert_eq!(lab.sandbox(&["run", "lab", "-c", SET]).ok(), "b'seen'\n");
    let told = lab.json(&["files", "lab"]);
    assert_eq!(told["entries"][0]["attributes"]["note"], "seen", "{told}");
    // A run may have a directory of the host.
    let run = lab.world.dir.run(["run", "-c", SET]);
    assert!(run.stderr.contains("Errno 95"), "{run:?}");
    lab.close();
}

#[test]
fn attributes_are_of_one_kind_and_bounded() {
    let lab = Lab::with_sandbox();
    let code = r"
import os
def error(path, name, value=b''):
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        return os.strerror(error.errno)
open('f', 'w').close()
print(error('f', 'trusted.x'), error('f', 'security.x'), error('/usr/bin', 'user.x'), sep='\n')
set, told = 0, None
while told is None and set < 1 << 20:
    path = f'many{set // 50}'
    open(path, 'a').close()
    told = error(path, f'user.{set}', b'v' * 1000)
    set += 1
print(told, set < 1 << 20)
";
    let told = lab.sandbox(&["run", "lab", "-c", code]);
    let told = told.ok();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "Operation not permitted");
    assert!(
        ["Operation not permitted", "Operation not supported"].contains(&lines[1]),
        "{lines:?}"
    );
    assert_eq!(
        lines[2..],
        ["Read-only file system", "No space left on device True"]
    );
    lab.close();
}
