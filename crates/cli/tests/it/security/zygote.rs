//! Threat: a module in a workspace, named like one of the standard library, which the interpreter that all
//! workers are forked from imports before it is confined.

use std::io::ErrorKind;
use std::net::TcpListener;

use super::fence::{Fence, PYTHON};
use crate::support::{eventually, finish};

/// Connects to a port of the host's loopback, with built-in modules only.
const CALL: &str = "import _socket\n\
    try: _socket.socket(2, 1).connect(('127.0.0.1', PORT))\n\
    except OSError: pass\n";

fn modules_of_a_workspace_stay_out_of_the_zygote(fence: Option<Fence>) {
    let Some(fence) = fence.map(Fence::with_engine) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let module = CALL.replace("PORT", &port.to_string());
    for name in ["random", "json", "ctypes", "tempfile"] {
        fence.dir.write(&format!("work/{name}.py"), &module);
    }
    // Outside it has its effect.
    let program = fence.dir.path("work/random.py");
    finish(fence.command(PYTHON.as_ref()).arg(program), b"").ok();
    listener.accept().unwrap();

    let options = ["--workspace", "."];
    eventually("a worker in the workspace is warm", || {
        fence.result(&options, "")["meta"]["warm"] == true
    });
    listener.set_nonblocking(true).unwrap();
    let called = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(called, Err(ErrorKind::WouldBlock));
    // Programs find modules beside them, as everywhere.
    fence.dir.write("work/beside.py", "name = 'beside'\n");
    let code = "import beside, sys; print(beside.name, sys.path[0])";
    assert_eq!(fence.printed(&options, code), "beside /workspace\n");
}

#[test]
fn of_root() {
    modules_of_a_workspace_stay_out_of_the_zygote(Fence::root());
}

#[test]
fn of_an_ordinary_user() {
    modules_of_a_workspace_stay_out_of_the_zygote(super::ordinary_user::fence());
}

#[test]
fn what_the_zygote_imports_reaches_no_network() {
    let Some(fence) = Fence::root() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // A package of the interpreter's own, which the user has configured for preloading.
    let venv = fence.dir.path("venv");
    finish(
        fence
            .command(PYTHON.as_ref())
            .args(["-m", "venv", "--without-pip"])
            .arg(&venv),
        b"",
    )
    .ok();
    let sites = "import site; print(site.getsitepackages()[0])";
    let python = venv.join("bin/python");
    let site = finish(fence.command(&python).args(["-c", sites]), b"")
        .ok()
        .trim()
        .to_owned();
    std::fs::write(
        format!("{site}/calling.py"),
        CALL.replace("PORT", &port.to_string()),
    )
    .unwrap();
    finish(fence.command(&python).args(["-c", "import calling"]), b"").ok();
    listener.accept().unwrap();

    let config = format!("python = '{}'\npreload = ['calling']", python.display());
    let fence = fence.with_engine_of(&config);
    let loaded = fence.printed(&[], "import sys; print('calling' in sys.modules)");
    assert_eq!(loaded, "True\n");
    listener.set_nonblocking(true).unwrap();
    let called = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(called, Err(ErrorKind::WouldBlock));
}
