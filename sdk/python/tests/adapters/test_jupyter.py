"""The Jupyter kernel: jupyter_kernel_test, notebooks of nbclient, and guests that attack the kernel and the page."""

from __future__ import annotations

import html
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import jupyter_kernel_test
import nbclient
import nbformat
import pytest
from conftest import BINARY, Server
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from ringfence import Client, Sandbox
from ringfence.jupyter import main
from ringfence.jupyter._outputs import MAX_STREAMED, Outputs, Stream
from ringfence.models import SandboxInfo

WAIT = 60
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module", autouse=True)
def jupyter(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Kernels that are installed below a directory of the test, and use the test's server."""
    prefix = tmp_path_factory.mktemp("jupyter")
    os.makedirs(prefix / "runtime", mode=0o700)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in server.env.items():
            patched.setenv(name, value)
        patched.setenv("JUPYTER_PATH", str(prefix / "share/jupyter"))
        patched.setenv("JUPYTER_RUNTIME_DIR", str(prefix / "runtime"))
        patched.setenv("JUPYTER_NO_CONFIG", "1")
        for options in (
            ["--memory", "1GiB"],
            ["--language", "bash"],
            ["--language=javascript"],
            ["--name", "all", "--outputs", "all"],
            ["--name=short", "--cell-timeout=1", "--memory=128MiB"],
            ["--name=brief", "--linger=3", "--memory=128MiB", "--env", "MODE=fast"],
        ):
            main(["install", "--prefix", str(prefix), *options])
        yield prefix


class Suite(jupyter_kernel_test.KernelTests):  # type: ignore[misc]
    """The suite for a busy machine: it waits for messages, and not for tenths of a second."""

    __test__ = False

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        channel = cls.kc.iopub_channel
        get = jupyter_kernel_test.ensure_sync(channel.get_msg)
        channel.get_msg = lambda timeout=None: get(timeout=WAIT)

    def flush_channels(self) -> None:
        asked = self.kc.kernel_info()
        for channel, last in ((self.kc.shell_channel, "kernel_info_reply"), (self.kc.iopub_channel, "status")):
            state = None
            while state != (asked, last, "idle" if last == "status" else None):
                message = jupyter_kernel_test.ensure_sync(channel.get_msg)(timeout=WAIT)
                jupyter_kernel_test.validate_message(message)
                parent, content = message["parent_header"].get("msg_id"), message["content"]
                state = (parent, message["msg_type"], content.get("execution_state"))


class PythonTests(Suite):
    __test__ = True
    kernel_name = "ringfence"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [
        {"text": "zi", "matches": {"zip"}},
        {"text": "1 + len", "matches": {"len"}},
        {"text": "str.isde", "matches": {"isdecimal"}},
        {"text": "nothing.there", "matches": set()},
        {"text": "'"},
    ]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n", "await x", "%pwd", "if x:\n  !ls\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2", "for each in x:"]
    invalid_code_samples = ["import = 7q", "1 1", "x = = %pwd"]
    code_generate_error = "raise RuntimeError('of the cell')"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [
        {"code": "display('shown')", "mime": "text/plain"},
        {"code": "class A:\n  def _repr_html_(self): return '<b>x</b>'\ndisplay(A())", "mime": "text/html"},
        {"code": "class A:\n  def _repr_svg_(self): return '<svg/>'\ndisplay(A())", "mime": "text/html"},
    ]
    code_inspect_sample = "len"


class BashTests(Suite):
    __test__ = True
    kernel_name = "ringfence-bash"
    language_name = "bash"
    file_extension = ".sh"
    code_hello_world = "echo hello, world"
    code_stderr = "echo test >&2"
    code_generate_error = "(exit 3)"


class JavaScriptTests(Suite):
    __test__ = True
    kernel_name = "ringfence-javascript"
    language_name = "javascript"
    file_extension = ".js"
    code_hello_world = "console.log('hello, world')"
    code_stderr = "console.error('test')"
    code_execute_result = [{"code": "await Promise.resolve(6 * 7)", "result": "42"}]


class Kernel:
    """A kernel and the messages of its cells."""

    def __init__(self, name: str, cwd: Optional[Path] = None) -> None:
        self.manager: KernelManager
        self.client: BlockingKernelClient
        self.manager, self.client = start_new_kernel(kernel_name=name, cwd=str(cwd or "/"))
        self.messages: List[Dict[str, Any]] = []

    def run(self, code: str, on: Optional[Callable[[Dict[str, Any]], None]] = None, **options: Any) -> Dict[str, Any]:
        """Runs a cell, and returns the content of its reply."""
        self.messages = []

        def hook(message: Dict[str, Any]) -> None:
            if message["msg_type"] not in ("status", "execute_input"):
                self.messages.append({"type": message["msg_type"], **message["content"]})
                if on is not None:
                    on(message)

        reply = self.client.execute_interactive(code, output_hook=hook, timeout=WAIT, **options)
        return dict(reply["content"])

    def text(self, name: str) -> str:
        return "".join(each["text"] for each in self.messages if each["type"] == "stream" and each["name"] == name)

    def data(self) -> List[Dict[str, Any]]:
        return [each["data"] for each in self.messages if "data" in each]

    def value(self, expression: str) -> str:
        self.run(expression)
        return str(self.data()[-1]["text/plain"])

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel()


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    kernel = Kernel(getattr(request, "param", "ringfence"))
    yield kernel
    kernel.stop()


def sandboxes(client: Client) -> List[SandboxInfo]:
    return Sandbox.list(client=client, metadata={"kernel": "jupyter"})


def ids(client: Client) -> List[str]:
    return [each.id for each in sandboxes(client)]


@pytest.mark.parametrize("how", ["message", "signal"])
def test_an_interrupt_keeps_the_state(kernel: Kernel, how: str) -> None:
    def interrupt(_: Any) -> None:
        if how == "message":
            kernel.manager.interrupt_kernel()
        else:
            os.kill(kernel.manager.provisioner.pid, signal.SIGINT)

    reply = kernel.run("x = 20\nprint('on', flush=True)\nwhile True: pass", interrupt)
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    assert kernel.value("x + 22") == "42"


@pytest.mark.parametrize(("stop", "status"), [(True, "aborted"), (False, "ok")])
def test_an_error_stops_what_waits_unless_told_otherwise(kernel: Kernel, stop: bool, status: str) -> None:
    asked = []

    def ask(_: Any) -> None:
        asked.append(kernel.client.execute("1"))
        kernel.manager.interrupt_kernel()

    reply = kernel.run("print('on', flush=True)\nwhile True: pass", ask, stop_on_error=stop)
    assert reply["ename"] == "KeyboardInterrupt"
    while True:
        message = kernel.client.get_shell_msg(timeout=WAIT)
        if message["parent_header"]["msg_id"] == asked[0]:
            assert message["content"]["status"] == status
            break


def test_silent_cells_show_and_count_nothing(kernel: Kernel) -> None:
    assert kernel.run("1")["execution_count"] == 1
    assert kernel.run("y = 5; print('p'); display(1); y", silent=True)["status"] == "ok"
    assert kernel.messages == []
    assert kernel.run("1 / 0", silent=True)["ename"] == "ZeroDivisionError"
    assert kernel.messages == []
    assert kernel.run("y", store_history=False)["execution_count"] == 2
    assert kernel.data() == [{"text/plain": "5"}]
    assert kernel.run("y")["execution_count"] == 2
    assert kernel.client.history(hist_access_type="tail", n=5, reply=True, timeout=WAIT)["content"]["history"] == []


def test_displays_are_updated_and_cleared(kernel: Kernel) -> None:
    kernel.run("%matplotlib inline\nh = display(1, display_id='a')\nh.update(2)\ndisplay(3)")
    assert [(each["type"], each["transient"]) for each in kernel.messages] == [
        ("display_data", {"display_id": "a"}),
        ("display_data", {}),
    ]
    assert [each["text/plain"] for each in kernel.data()] == ["2", "3"]
    kernel.run("h.update(4)\nh.update(5)")
    (update,) = kernel.messages
    assert (update["type"], update["transient"], update["data"]) == (
        "update_display_data",
        {"display_id": "a"},
        {"text/plain": "5"},
    )
    kernel.run("display(1)\nget_ipython().display_pub.clear_output()\ndisplay(2)")
    assert [each["text/plain"] for each in kernel.data()] == ["2"]
    for mark in ("{'id': 1, 'update': True}", "{'id': 'a' * 257, 'update': True}", "[]"):
        kernel.run(f"display({{'text/plain': '', 'application/vnd.ringfence.display+json': {mark}}}, raw=True)")
        assert (kernel.messages[0]["type"], kernel.messages[0]["transient"]) == ("display_data", {}), mark


def test_what_the_guest_has_not_is_refused_in_the_terms_of_the_protocol(kernel: Kernel) -> None:
    info = kernel.client.kernel_info(reply=True, timeout=WAIT)["content"]
    assert info["supported_features"] == []
    assert info["language_info"]["version"] == kernel.value("__import__('sys').version.split()[0]").strip("'")
    # Nobody is asked for input, though the front end would answer.
    assert kernel.run("input('name?')", allow_stdin=True)["ename"] == "EOFError"
    assert kernel.client.comm_info(reply=True, timeout=WAIT)["content"]["comms"] == {}
    # It holds no files of the notebook, and its own are gone with it.
    assert kernel.value("__import__('os').listdir()") == "[]"


def test_tracebacks_name_the_cells_of_the_notebook(kernel: Kernel) -> None:
    kernel.run("def f(): raise ValueError('two\\nlines')")
    kernel.client.complete("f", reply=True, timeout=WAIT)
    reply = kernel.run("f()", user_expressions={"a": "1"})
    assert (reply["ename"], reply["evalue"]) == ("ValueError", "two\nlines")
    assert [line.strip() for line in reply["traceback"] if set(line) - set(" ^~")] == [
        "Traceback (most recent call last):",
        'File "<cell 2>", line 1, in <module>',
        "f()",
        'File "<cell 1>", line 1, in f',
        "def f(): raise ValueError('two\\nlines')",
        "ValueError: two",
        "lines",
    ]
    # The error is no output, too.
    assert [each["type"] for each in kernel.messages] == ["error"]
    many = "for n in range(40): display(n)\n1 / 0"
    assert kernel.run(many)["status"] == "error"
    assert "ZeroDivisionError" in kernel.text("stderr")
    assert kernel.run("import sys; sys.exit(3)")["evalue"] == "3"


def test_expressions_are_evaluated_after_the_cell(kernel: Kernel) -> None:
    answers = kernel.run("n = 6", user_expressions={"good": "n * 7", "bad": "nothing"})["user_expressions"]
    assert answers["good"] == {"status": "ok", "data": {"text/plain": "42"}, "metadata": {}}
    assert (answers["bad"]["status"], answers["bad"]["ename"]) == ("error", "NameError")
    kernel.run("n")
    # Neither they nor other questions change `_`, nor leave names behind.
    kernel.client.inspect("n", 1, reply=True, timeout=WAIT)
    kernel.run("m = 1", user_expressions={"other": "'x'"})
    assert kernel.value("_") == "6"
    assert kernel.value("[n for n in globals() if n[0] != '_']") == "['n', 'm']"


@pytest.mark.parametrize("kernel", ["brief"], indirect=True)
def test_a_lost_interpreter_is_told_and_replaced(kernel: Kernel) -> None:
    assert kernel.value("import os; x = 1; os.environ['MODE']") == "'fast'"
    reply = kernel.run("x = bytearray(1 << 30)")
    assert reply["status"] == "error" and "all variables" in reply["evalue"], reply
    assert kernel.run("x")["ename"] == "NameError"


def test_restarting_and_ending_kill_the_sandbox(kernel: Kernel, client: Client) -> None:
    first = ids(client)
    kernel.run("x = 1")
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=WAIT)
    assert kernel.run("x")["ename"] == "NameError"
    second = ids(client)
    assert len(first) == len(second) == 1 and first != second
    os.kill(kernel.manager.provisioner.pid, signal.SIGTERM)
    kernel.manager.provisioner.process.wait(WAIT)
    assert sandboxes(client) == []


@pytest.mark.parametrize("kernel", ["brief"], indirect=True)
def test_a_sandbox_lives_as_long_as_its_kernel(kernel: Kernel, client: Client) -> None:
    seen = {each.expires_at for each in sandboxes(client)}
    while len(seen) < 5:
        # Longer than it would live if nobody extended its time.
        seen |= {each.expires_at for each in sandboxes(client)}
    assert kernel.value("6 * 7") == "42"
    os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
    while sandboxes(client):
        pass


@pytest.mark.parametrize("kernel", ["short"], indirect=True)
def test_a_limit_that_ends_a_cell_is_named_with_its_option(kernel: Kernel) -> None:
    late = kernel.run("n = 6\nwhile True: pass")
    assert "past its time limit (1s)" in late["evalue"] and "--cell-timeout" in late["evalue"], late
    assert kernel.value("n * 7") == "42"
    large = kernel.run("held = [b'x' * 2**20 for _ in range(2**20)]")
    assert "reached its memory limit" in large["evalue"] and "`--memory`" in large["evalue"], large
    assert "all variables" in large["evalue"], large


@pytest.mark.parametrize(
    ("option", "text"),
    [("--memory", "2Gigs"), ("--memory", "-1GiB"), ("--disk", "."), ("--cell-timeout", "1 day"), ("--cell-timeout", "5M")],
)
def test_limits_are_checked_when_a_kernel_is_installed(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["install", "--prefix", "/nonexistent", f"{option}={text}"])
    assert f"got {text!r}" in capsys.readouterr().err


def test_a_sandbox_that_is_gone_is_told(kernel: Kernel, client: Client) -> None:
    (sandbox,) = ids(client)
    with Sandbox.connect(sandbox, client=client) as connected:
        connected.kill()
    reply = kernel.run("1")
    assert (reply["ename"], "restart the kernel" in reply["evalue"]) == ("NotFound", True), reply


def test_the_notebooks_directory_has_no_part_in_it(tmp_path: Path) -> None:
    planted = ("httpcore", "sniffio", "json", "ringfence", "ipykernel", "IPython", "zmq", "debugpy", "psutil", "sitecustomize", "readline")
    for name in planted:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit(1)\n")
    (tmp_path / "ipython_config.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('configuration')\n")
    outside = subprocess.run([sys.executable, "-c", "import httpcore"], cwd=tmp_path)
    assert (outside.returncode, (tmp_path / "ran").read_text()) == (1, "httpcore"), "it is planted well"
    (tmp_path / "ran").unlink()
    kernel = Kernel("ringfence", tmp_path)
    try:
        assert kernel.value("6 * 7") == "42"
        assert kernel.run("1 / 0")["ename"] == "ZeroDivisionError"
        kernel.client.complete("le", reply=True, timeout=WAIT)
        kernel.manager.interrupt_kernel()
    finally:
        kernel.stop()
    assert not (tmp_path / "ran").exists()


# A guest, in Python, that answers the kernel's questions with what no honest one says.
LIAR = """
import sys, builtins
show = display
def lie(function, *arguments):
    show({"application/vnd.ringfence.answer+json": LIES[function]}, raw=True)
sys.modules["ringfence_jupyter"].answer = lie
"""


@pytest.mark.parametrize(
    "lies",
    [
        {"complete": [], "describe": "x", "is_complete": 7, "evaluate": None},
        {
            "complete": {"matches": {"a": 1}, "start": -1},
            "describe": {"text": ["x"]},
            "is_complete": {"status": "no", "indent": 5},
            "evaluate": {"n": [1], "more": {"text": "x"}},
        },
        {
            "complete": {"matches": ["ok\x1b]52;c;x\x07", 5, None], "start": 10**400},
            "describe": {"text": "\x1b[2J\x9b2Jx\ud800"},
            "is_complete": {"status": "incomplete", "indent": "rm -rf /"},
            "evaluate": {"n": {"name": [], "value": {"a": "b"}}},
        },
    ],
)
def test_a_guest_that_lies_gets_valid_messages_made_of_it(kernel: Kernel, lies: Any) -> None:
    kernel.run(f"LIES = {lies!r}\n" + LIAR)
    client = kernel.client
    replies = {
        "complete_reply": client.complete("ab", reply=True, timeout=WAIT),
        "inspect_reply": client.inspect("ab", 1, reply=True, timeout=WAIT),
        "execute_reply": client.execute("1", user_expressions={"n": "1"}, reply=True, timeout=WAIT),
    }
    asked = client.is_complete("ab")
    replies["is_complete_reply"] = client.get_shell_msg(timeout=WAIT)
    for kind, reply in replies.items():
        jupyter_kernel_test.validate_message(reply, kind)
        assert "\x1b" not in json.dumps(reply["content"]).replace("\\u001b", "\x1b")
    assert replies["is_complete_reply"]["parent_header"]["msg_id"] == asked
    assert replies["is_complete_reply"]["content"].get("indent", "") == ""
    assert set(replies["execute_reply"]["content"]["user_expressions"]) == {"n"}
    assert kernel.value("6 * 7") == "42"


BREAKING = [
    # Numbers and texts that some parsers of JSON do not take.
    "class N:\n  def _repr_json_(self): return '[' + '9' * 5000 + ']'\nN()",
    "display({'application/vnd.x+json': '1e999'}, raw=True)",
    "display({'application/vnd.x+json': '[' * 31 + ']' * 31}, raw=True)",
    "display({'application/vnd.ringfence.error+json': [1]}, raw=True); 1 / 0",
    "display({'application/vnd.ringfence.error+json': {'name': 'Forged', 'traceback': 7}}, raw=True)",
    "import sys; sys.excepthook = None\n1 / 0",
    "import sys; sys.stdout.buffer.write(bytes(range(256)) * 9); sys.stderr.write('\\udcff\\x1b[2J')",
    "import builtins; del builtins.display, builtins.exec, builtins.__import__; 1 / 0",
    "import sys; sys.modules.clear()",
    "import os; os.write(1, b'\\x1b['); os.write(1, b'2J'); os._exit(0)",
    "import os; os.close(3)",
    "display(*range(50)); display('x' * 5_000_000); raise Exception('y' * 9_000_000)",
]


def test_no_output_hangs_the_kernel(kernel: Kernel) -> None:
    for code in BREAKING:
        reply = kernel.run(code)
        assert reply["status"] in ("ok", "error"), code
        shown = json.dumps(kernel.messages)
        assert "\\u001b[2J" not in shown and "Forged" not in json.dumps(reply)
        assert all("application/vnd.x+json" not in data for data in kernel.data())
        kernel.client.complete("x", reply=True, timeout=WAIT)
        assert kernel.run("6 * 7")["status"] in ("ok", "error")
        # Whatever it broke was its own: a new one is whole.
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=WAIT)
        assert kernel.value("6 * 7") == "42", code


def test_output_without_end_is_bounded(kernel: Kernel) -> None:
    pieces = []

    def interrupt(message: Dict[str, Any]) -> None:
        pieces.append(message)
        if "more than" in message["content"].get("text", ""):
            kernel.manager.interrupt_kernel()

    reply = kernel.run("while True: print('x' * 10000)", interrupt)
    assert reply["ename"] == "KeyboardInterrupt"
    assert len(kernel.text("stdout")) <= MAX_STREAMED


def test_only_colours_pass_as_escape_sequences() -> None:
    safe, everything = Outputs(False), Outputs(True)
    given = "a\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07\x1bc\x00\x9b5n\x85b\r\n\t\x08"
    expected = "a\x1b[31mred\x1b[0m]0;titlec5nb\r\n\t\x08"
    assert safe.text(given) == expected and everything.text(given) == given
    for cut in range(len(given)):
        stream = Stream(safe)
        assert stream.push(given[:cut]) + stream.push(given[cut:]) + stream.end() == expected, cut


def test_what_can_act_in_the_page_is_left_out_and_told_once(kernel: Kernel) -> None:
    code = (
        "display({'text/plain': 'p', 'application/javascript': 'alert(1)', 'text/markdown': '<b>', 'text/latex': '$x$',"
        " 'application/json': {'a': 1}, 'application/vnd.jupyter.widget-view+json': {}}, raw=True)"
    )
    for told in (3, 0):
        kernel.run(code)
        assert kernel.data() == [{"text/plain": "p", "application/json": {"a": 1}}]
        assert all(each.get("metadata", {}) == {} for each in kernel.messages)
        assert kernel.text("stderr").count("left out") == told + (told > 0)


@pytest.mark.parametrize("kernel", ["all"], indirect=True)
def test_a_person_may_have_everything_passed_on(kernel: Kernel) -> None:
    kernel.run("display({'application/javascript': 'x', 'text/html': '<b>'}, raw=True); print('\\x1b[2J')")
    assert kernel.data() == [{"application/javascript": "x", "text/html": "<b>"}]
    assert kernel.text("stdout") == "\x1b[2J\n"


class Visits(http.server.BaseHTTPRequestHandler):
    """Notes which paths a browser fetches."""

    seen: List[str] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


# As JupyterLab shows HTML of a cell that was just run: scripts in it are made anew, so that they run.
PAGE = """<!DOCTYPE html><meta charset=utf-8><body><div id=out></div><script>
const out = document.getElementById("out");
out.innerHTML = %s;
for (const old of out.querySelectorAll("script")) {
  const script = document.createElement("script");
  script.textContent = old.textContent;
  old.replaceWith(script);
}
</script>"""

HOSTILE = """<script>top.document.body.dataset.script = "ran"</script>
<img src=x onerror='top.document.body.dataset.handler = "ran"'>
<svg onload='top.document.body.dataset.svg = "ran"'></svg>
<iframe srcdoc='<script>top.document.body.dataset.inner = "ran"</script>'></iframe>
"'></iframe><script>document.body.dataset.broken = "ran"</script>&quot;&gt;<script>document.body.dataset.twice = "ran"</script>
<img src='URL/img'><LINK rel=stylesheet href='URL/css'><link rel=preconnect href='URL'><style>@import 'URL/import'; b {background: url(URL/url)}</style><b>b</b>
<object data='URL/object'></object><video src='URL/video'></video><meta http-equiv=refresh content='0;url=URL/refresh'>
<base href='URL/'><img src=relative><embed src='URL/embed'>"""


@pytest.mark.parametrize("media", ["text/html", "image/svg+xml"])
def test_markup_of_a_guest_runs_and_fetches_nothing_in_the_page(tmp_path: Path, media: str) -> None:
    visits = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Visits)
    threading.Thread(target=visits.serve_forever, daemon=True).start()
    markup = HOSTILE.replace("URL", f"http://127.0.0.1:{visits.server_port}")
    if media == "image/svg+xml":
        markup = f'<svg xmlns="http://www.w3.org/2000/svg" onload="top.document.body.dataset.svg=1">{markup}</svg>'
    shown = {}
    inside = Outputs(False).bundle({media: markup})["text/html"]
    # A link of any kind can connect to a host, whatever the policy says: a name there is a message.
    assert "&lt;link" in html.escape(markup).lower() and "&lt;link" not in inside.lower()
    # The frame is there, and it is what holds.
    weakened = inside.replace('sandbox=""', "").replace("default-src", "other-src")
    for name, text in (("outside", markup), ("weakened", weakened), ("inside", inside)):
        Visits.seen = []
        (tmp_path / f"{name}.html").write_text(PAGE % json.dumps(text).replace("</", "<\\/"))
        page = dom(tmp_path / f"{name}.html")
        shown[name] = ("data-" in page.partition("<body")[2].partition(">")[0], bool(Visits.seen))
    visits.shutdown()
    visits.server_close()
    assert shown["outside"] == (True, True)
    assert media != "text/html" or shown["weakened"] == (True, True)
    assert shown["inside"] == (False, False)


def dom(page: Path) -> str:
    """Returns the document that Chromium makes of a page and of what it loads."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'profile'}"]
    options = ["--allow-file-access-from-files", "--dump-dom", "--timeout=30000", page.as_uri()]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_notebook_is_executed(tmp_path: Path) -> None:
    cells = [
        "%matplotlib inline\nimport pandas as pd, matplotlib.pyplot as plt",
        "frame = pd.DataFrame({'x': [1, 2, 3], 'y': [1, 4, 9]})\nframe",
        "plt.plot(frame.x, frame.y); plt.title('squares'); plt.show()",
        "print(frame.y.sum())",
        "%nothing",
    ]
    if not os.environ.get("RINGFENCE_TEST_VENV"):
        pytest.skip("no target/test-venv (`cargo xtask setup` makes it)")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, kernel_name="ringfence", allow_errors=True, timeout=WAIT).execute()
    nbformat.validate(notebook)
    table, picture, text, error = (cell.outputs for cell in notebook.cells[1:])
    assert table[0].output_type == "execute_result" and "srcdoc" in table[0].data["text/html"]
    assert "x  y" in table[0].data["text/plain"]
    assert picture[0].data["image/png"].startswith("iVBOR")
    assert text[0].text == "14\n"
    assert (error[0].output_type, error[0].ename) == ("error", "UsageError")


def test_the_guides_commands_print_what_it_says(jupyter: Path, tmp_path: Path) -> None:
    # An environment of Python, as it is when it is active, and a home of its own.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.path.dirname(BINARY), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    del env["JUPYTER_PATH"]
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")]
    nbformat.write(notebook, tmp_path / "analysis.ipynb")
    guide = (ROOT / "docs/guide/jupyter.md").read_text()
    command, ran = "", 0
    for block in guide.split("```sh\n")[1:]:
        for line in block.split("```")[0].splitlines():
            if not line.startswith("# "):
                command += line + "\n"
                continue
            done = subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True)
            assert done.returncode == 0 and line[2:] in done.stdout, (command, done.stdout, done.stderr)
            command, ran = "", ran + 1
    assert (command, ran) == ("", 5)
