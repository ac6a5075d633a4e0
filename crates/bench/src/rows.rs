//! All figures, in order of measurement.

mod batch;
mod container_runs;
mod container_tool;
mod containers;
mod engine;
mod mcp;
mod memory;
mod monty;
mod packages;
mod policy;
mod pyodide;
mod python_package;
mod sandboxes;
mod sessions;
mod skills;
mod toolbox;
mod whole;

use super::context::BenchContext;
use super::figure::Figure;

/// A figure, or several from one measurement.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    pub about: &'static str,
    measure: fn(&mut BenchContext) -> anyhow::Result<Vec<Figure>>,
}

impl Row {
    /// Measures the row's figures. A failure is a figure with its reason: the other rows are still useful.
    pub fn measure(&self, place: &mut BenchContext) -> Vec<Figure> {
        (self.measure)(place)
            .unwrap_or_else(|error| vec![Figure::unmeasured(self.name, format!("{error:#}"))])
    }
}

pub const ROWS: &[Row] = &[
    Row {
        name: "start",
        about: "`ringfence --version`",
        measure: whole::start,
    },
    Row {
        name: "python",
        about: "plain `python3 -I -S -c 'print(1)'`, the peer of most others",
        measure: whole::python,
    },
    Row {
        name: "run-cold",
        about: "whole `ringfence run --no-engine` beside python3, and beside bwrap where there is one",
        measure: whole::cold,
    },
    Row {
        name: "run-engine",
        about: "whole `ringfence run` with a server, beside python3",
        measure: whole::warm,
    },
    Row {
        name: "tool-engine",
        about: "whole `ringfence tool run_python_code` with a server, beside python3",
        measure: whole::tool,
    },
    Row {
        name: "engine-request",
        about: "request to result over the server's socket, with time to refill in between",
        measure: engine::request,
    },
    Row {
        name: "monty",
        about: "runs and evaluations beside those of Monty, if `python3` has its package `pydantic-monty`",
        measure: monty::beside,
    },
    Row {
        name: "http-run",
        about: "`POST /v1/run` over a kept connection, beside the same request in frames",
        measure: engine::http,
    },
    Row {
        name: "kernel",
        about: "what the kernel adds to a tool that does nothing",
        measure: toolbox::overhead,
    },
    Row {
        name: "policy",
        about: "what the command policy takes to decide about a line",
        measure: policy::decision,
    },
    Row {
        name: "session-evaluation",
        about: "a piece of code in a session, request to result over the server's socket",
        measure: sessions::evaluation,
    },
    Row {
        name: "session-fork",
        about: "a copy of a session in a cell of its own, request to answer over the server's socket",
        measure: sessions::fork,
    },
    Row {
        name: "packages",
        about: "pandas and matplotlib that the server has imported beforehand, if `python3` has them, beside a fresh python3",
        measure: packages::preloaded,
    },
    Row {
        name: "sandbox-create",
        about: "a local sandbox created, its first process ended, and removed, over HTTP, beside `docker run --rm`",
        measure: sandboxes::create,
    },
    Row {
        name: "sandbox-image",
        about: "the same on an image that is unpacked, beside `docker run --rm` of it",
        measure: sandboxes::create_on_image,
    },
    Row {
        name: "sandbox-exec",
        about: "a process in a live sandbox, start to exit, over HTTP, beside `docker exec`",
        measure: sandboxes::exec,
    },
    Row {
        name: "sandbox-context",
        about: "`1+1` in a Python context of a sandbox, over HTTP, beside plain python3; memory of the idle sandbox",
        measure: sandboxes::context,
    },
    Row {
        name: "python-package",
        about: "`run_code(\"1+1\")` in a live sandbox by the package for Python, if `python3` has it",
        measure: python_package::run_code,
    },
    Row {
        name: "sandbox-file",
        about: "1 MiB written to a sandbox and read back, over HTTP, beside `docker cp`",
        measure: sandboxes::file,
    },
    Row {
        name: "sandbox-fork",
        about: "a copy of the files of a sandbox that has a Python context, which is not copied, over HTTP",
        measure: sandboxes::fork,
    },
    Row {
        name: "sandbox-many",
        about: "300 sandboxes created at once over HTTP, a first process ended in each",
        measure: sandboxes::many,
    },
    Row {
        name: "throughput",
        about: "runs a second through the server, four clients at once, beside as many python3; processor time of a run",
        measure: engine::throughput,
    },
    Row {
        name: "batch",
        about: "10,000 programs in one `POST /v1/batch`, beside four clients at once over the server's socket",
        measure: batch::batch,
    },
    Row {
        name: "mcp-call",
        about: "`run_python_code` through `ringfence mcp`, call to answer, with time to refill in between",
        measure: mcp::call,
    },
    Row {
        name: "bridge-call",
        about: "a call of a skill's function by a program, beside a line between two plain Pythons and back",
        measure: skills::call,
    },
    Row {
        name: "tool-loop",
        about: "200 calls of a skill's function in one program, beside 200 uses of a tool that make one each",
        measure: skills::tool_loop,
    },
    Row {
        name: "fresh-bash",
        about: "whole `ringfence run -l bash` beside plain bash",
        measure: whole::bash,
    },
    Row {
        name: "fresh-node",
        about: "whole `ringfence run -l javascript` beside plain node",
        measure: whole::node,
    },
    Row {
        name: "idle-worker",
        about: "memory that a waiting worker has for itself (PSS)",
        measure: memory::worker,
    },
    Row {
        name: "engine-idle",
        about: "memory of a server with an empty pool (RSS)",
        measure: memory::engine,
    },
    Row {
        name: "pyodide-run",
        about: "a run in Pyodide, from its snapshot and from an interpreter that waited, beside plain Deno and Pyodide",
        measure: pyodide::runs,
    },
    Row {
        name: "pyodide-worker",
        about: "memory that an interpreter of Pyodide takes while it waits (PSS)",
        measure: pyodide::worker,
    },
    Row {
        name: "container-call",
        about: "a call in a container with our init, beside `exec`, both over the container engine's API and from rest",
        measure: containers::calls,
    },
    Row {
        name: "container-run",
        about: "a run in a container that waited for it, beside `docker run --rm`, with time to refill in between",
        measure: container_runs::runs,
    },
    Row {
        name: "container-back-to-back",
        about: "runs of 100 back to back for which a container is made, as none is left in the pool",
        measure: container_runs::back_to_back,
    },
    Row {
        name: "container-tool",
        about: "whole `ringfence tool sandbox_exec` with a kept container, beside whole `exec`",
        measure: container_tool::whole,
    },
    Row {
        name: "container-start",
        about: "a container from nothing until its init is ready for calls",
        measure: containers::starts,
    },
    Row {
        name: "container-idle",
        about: "memory that a container takes while nothing runs in it (PSS)",
        measure: containers::idle,
    },
    Row {
        name: "timeout-overshoot",
        about: "time past the limit until a busy loop's result is there, and processes that are left",
        measure: engine::timeout,
    },
    Row {
        name: "flood",
        about: "growth of the server's memory while a program prints 1 GiB (--full: 10 GiB)",
        measure: memory::flood,
    },
];
