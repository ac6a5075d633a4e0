"""The surface of `Sandbox` and `Client`, on a real server."""

from __future__ import annotations

import inspect
import io
import json
import os
import socket
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from conftest import BINARY, KEY, Server, needs_box
from ringfence import (
    Client,
    CommandFailed,
    Conflict,
    IncompatibleServer,
    InvalidArguments,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    RingfenceError,
    Sandbox,
    StillRunning,
    errors,
)
from ringfence._exceptions import printed


def test_ten_lines(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x,y\n1,2\n2,4\n")
    printed: List[str] = []
    with Sandbox(socket=server.socket) as sb:
        with open(tmp_path / "data.csv", "rb") as file:
            sb.files.write("data.csv", file)
        ex = sb.run_code("x = sum(1 for _ in open('data.csv'))\nprint('read', x)\nx", on_stdout=printed.append)
        assert "".join(printed) == "read 3\n" == "".join(ex.logs.stdout)
        assert (ex.text, ex.error, ex.execution_count) == ("3", None, 1)
        assert "data.csv" in sb.commands.run("ls -l").stdout
        found = sb.sandbox_id
    with pytest.raises(NotFound):
        Sandbox.connect(found, socket=server.socket)


@pytest.mark.skipif(not os.environ.get("RINGFENCE_TEST_VENV"), reason="no target/test-venv with matplotlib")
def test_a_chart_is_a_picture(client: Client) -> None:
    # `sandbox.python` of the server shows the environment inside; `python3` is the first one of PATH.
    path = os.path.dirname(os.environ["RINGFENCE_TEST_VENV"]) + ":/usr/bin:/bin"
    with Sandbox(client=client, memory="1GiB", env={"PATH": path}) as sandbox:
        sandbox.files.write("data.csv", "x,y\n1,2\n2,4\n")
        code = "import matplotlib.pyplot as plt\nimport pandas as pd\npd.read_csv('data.csv').plot()\nplt.show()"
        ex = sandbox.run_code(code, timeout=120)
        assert ex.error is None, ex
        pictures = [result.png for result in ex.results if result.png]
        assert pictures and pictures[0].startswith(b"\x89PNG\r\n")
        (chart,) = (result.chart for result in ex.results)
        assert (chart["type"], [each["label"] for each in chart["elements"]]) == ("line", ["x", "y"])
        frame = sandbox.run_code("pd.read_csv('data.csv')").results[0]
        assert frame.data == {"x": [1, 2], "y": [2, 4]} and frame.html and "<table" in frame.html


def test_results_have_their_formats(sandbox: Sandbox) -> None:
    code = (
        "class Rich:\n"
        "    def _repr_html_(self): return '<b>x</b>'\n"
        "    def _repr_json_(self): return {'a': 1}\n"
        "    def __repr__(self): return 'rich'\n"
        "Rich()"
    )
    shown: List[Any] = []
    ex = sandbox.run_code(code, on_result=shown.append)
    (result,) = ex.results
    assert shown == [result]
    assert (result.html, result.json, result.text, str(result)) == ("<b>x</b>", {"a": 1}, "rich", "rich")
    assert (result.png, result.data, result.chart, result.is_main_result) == (None, None, None, True)


def test_results_have_charts_and_tables(sandbox: Sandbox) -> None:
    # The media types are those of the session's rich.py.
    written = (Path(__file__).parents[3] / "crates/exec/python/rich.py").read_text()
    for name, constant in [("chart", "CHART"), ("data", "RECORDS")]:
        (media,) = (line.split('"')[1] for line in written.splitlines() if line.startswith(f"{constant} = "))
        (result,) = sandbox.run_code(f"display({{{media!r}: {{'a': [1]}}}}, raw=True)").results
        assert getattr(result, name) == {"a": [1]} and result.formats() == [media]


def test_the_repr_of_a_picture_is_short(sandbox: Sandbox) -> None:
    head = b"\x89PNG\r\n\x1a\n"
    ex = sandbox.run_code(f"display({{'image/png': {head!r} + bytes(300_000), 'text/html': 'x' * 300_000, 'text/plain': 'p'}}, raw=True)")
    assert ex.results[0].png == head + bytes(300_000)
    for text in (repr(ex), str(ex)):
        assert "'image/png': <300" in text and "'text/plain': 'p'" in text and len(text) < 1000, text


def test_an_exception_of_code_is_its_error(sandbox: Sandbox) -> None:
    stderr: List[str] = []
    ex = sandbox.run_code("print('é')\nraise ValueError('no: two\\nlines')", on_stderr=stderr.append)
    assert ex.error is not None and not ex.ok and ex.exit_code == 1
    assert (ex.error.name, ex.error.value) == ("ValueError", "no: two\nlines")
    assert ex.error.traceback.startswith("Traceback") and ex.error.traceback in "".join(stderr)
    # The other way of asking tells the same.
    again = sandbox.run_code("raise ValueError('no: two\\nlines')")
    assert again.error is not None and (again.error.name, again.error.value) == ("ValueError", "no: two\nlines")


def test_errors_of_syntax_and_of_javascript_have_names(sandbox: Sandbox) -> None:
    def error(code: str, language: str = "python") -> "tuple[str, str]":
        found = sandbox.run_code(code, language).error
        assert found is not None
        return found.name, found.value

    assert error("x=") == ("SyntaxError", "invalid syntax")
    assert error("if x:\ny")[0] == "IndentationError"
    assert error("class Odd(Exception): pass\nraise Odd") == ("Odd", "")
    assert error("try: 1/0\nexcept Exception as e: raise Odd('a: b') from e") == ("Odd", "a: b")
    assert error("throw new TypeError('no: x')", "javascript") == ("TypeError", "no: x")
    assert error("throw 5", "javascript") == ("Error", "5")
    for code, language in [("import sys; sys.exit(1)", "python"), ("echo '  File' >&2; false", "bash")]:
        assert error(code, language) == ("exit status", "1")


def test_a_group_has_its_own_name() -> None:
    # As Python from 3.11 on prints it.
    group = (
        '  + Exception Group Traceback (most recent call last):\n  |   File "<cell 2>", line 3, in <module>\n  |     raise G\n'
        "  | ExceptionGroup: g (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n    | ValueError: 1\n    +------------------------------------\n"
    )
    found = printed("warning\n" + group)
    assert found == ("ExceptionGroup", "g (1 sub-exception)", group)


def test_ends_that_are_no_exception(sandbox: Sandbox) -> None:
    sandbox.run_code("kept = 5")
    late = sandbox.run_code("while True: pass", timeout=0.2)
    assert late.error is not None and late.error.name == late.outcome == "timed_out" and late.interrupted
    assert sandbox.run_code("kept").text == "5"
    gone = sandbox.run_code("import os; os._exit(3)")
    assert gone.error is not None and gone.error.value == "3" and gone.outcome == "exited" and gone.context_ended


def test_contexts_are_apart(sandbox: Sandbox) -> None:
    one = sandbox.contexts.create(cwd="/tmp")
    sandbox.run_code("x = 1")
    assert sandbox.run_code("import os; os.getcwd()", context=one).text == "'/tmp'"
    assert sandbox.run_code("x", context=one).error is not None
    assert {one.id} < {each.id for each in sandbox.contexts.list()}
    sandbox.contexts.remove(one)
    with pytest.raises(NotFound):
        sandbox.run_code("1", context=one)
    assert sandbox.run_code("N=7; echo $N", "bash").logs.stdout == ["7\n"]
    for refused in (sandbox.contexts.create, lambda user: sandbox.run_code("1", user=user), sandbox.pty.create):
        with pytest.raises(errors.NotSupported, match="one user"):
            refused(user="nobody")


@needs_box
def test_code_runs_as_a_user(client: Client) -> None:
    who = "import os; os.getuid()"
    with Sandbox(client=client, fence="box") as sandbox:
        one = sandbox.contexts.create(user="nobody")
        assert (one.user, [each.user for each in sandbox.contexts.list()]) == ("nobody", ["nobody"])
        assert sandbox.run_code(who, context=one).text == sandbox.run_code(who, user="nobody").text == "65534"
        assert sandbox.run_code(who).text == "0"
        sandbox.run_code("secret = 1", user="1000")
        assert sandbox.run_code("secret", user="1000").text == "1" and sandbox.run_code("secret").error is not None
        assert sandbox.pty.create("id -u", user="nobody").wait().stdout == "65534\r\n"
        with pytest.raises(InvalidArguments, match="belongs to the user `nobody`"):
            sandbox.run_code(who, context=one, user="root")
        for refused in (sandbox.contexts.create, lambda user: sandbox.run_code("1", user=user), sandbox.pty.create):
            with pytest.raises(NotFound, match="no user `nope`"):
                refused(user="nope")


def test_commands(sandbox: Sandbox) -> None:
    result = sandbox.commands.run(["sh", "-c", "echo $N; pwd; echo é >&2; exit 3"], cwd="/tmp", env={"N": "1"})
    assert (result.stdout, result.stderr, result.exit_code) == ("1\n/tmp\n", "é\n", 3)
    assert not result.ok
    with pytest.raises(CommandFailed, match="status 3") as failed:
        sandbox.commands.run("echo out; exit 3", check=True)
    assert failed.value.result.stdout == "out\n"
    for command, told in [
        ("echo out; echo first >&2; echo 'bad thing' >&2; exit 3", "the command ended with the status 3: bad thing"),
        ("printf 'a\\33[2Jb\\n\\n' >&2; exit 4", "the command ended with the status 4: a\ufffd[2Jb"),
        ("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 5", "the command ended with the status 5: …" + "x" * 300),
    ]:
        with pytest.raises(CommandFailed) as failed:
            sandbox.commands.run(command, check=True)
        assert str(failed.value) == told
    pieces: List[str] = []
    streamed = sandbox.commands.run("echo a; echo b >&2", on_stdout=pieces.append, on_stderr=pieces.append)
    assert sorted(pieces) == ["a\n", "b\n"] and (streamed.stdout, streamed.stderr) == ("a\n", "b\n")
    assert sandbox.commands.run("sleep 60", timeout=0.1).outcome == "timed_out"
    cut = sandbox.commands.run("seq 100", max_output=10, on_stdout=pieces.append)
    assert cut.truncated and len(cut.stdout) == 10
    with pytest.raises(NotFound):
        sandbox.commands.run(["no-such-program"])
    assert sandbox.commands.run("echo $USER", user="sandbox").stdout == "sandbox\n"
    with pytest.raises(errors.NotSupported, match="one user"):
        sandbox.commands.run("true", user="root")


def test_a_callback_that_nobody_would_await_is_refused(sandbox: Sandbox) -> None:
    async def callback(text: str) -> None:
        raise AssertionError(text)

    for call in (lambda: sandbox.commands.run("echo x", on_stdout=callback), lambda: sandbox.run_code("print(1)", on_stdout=callback)):
        with pytest.raises(RingfenceError, match="coroutine"):
            call()


def test_handles(sandbox: Sandbox) -> None:
    cat = sandbox.commands.start("cat", stdin=True)
    cat.send_stdin("one\n")
    outputs = cat.stream()
    first = next(outputs)
    assert (first.stream, first.text) == ("stdout", "one\n")
    again = sandbox.commands.connect(cat.pid)
    again.send_stdin(io.BytesIO(b"two\n"), end=True)
    assert cat.wait().stdout == "one\ntwo\n"
    outputs.close()
    with pytest.raises(Conflict, match=r"start another with `stdin=True`"):
        cat.send_stdin("late")
    sleeper = sandbox.commands.start(["sleep", "600"])
    with pytest.raises(Conflict, match=r"start a process with `stdin=True`"):
        sleeper.send_stdin("none")
    chatty = sandbox.commands.start("while :; do echo more; sleep 0.01; done")
    for handle in (sleeper, chatty):
        with pytest.raises(StillRunning, match=r"has not ended within 0\.2 s") as late:
            handle.wait(timeout=0.2)
        assert isinstance(late.value, TimeoutError) and handle.info().end is None
    assert chatty.kill() and chatty.wait(timeout=60).outcome == "cancelled"
    assert sleeper.pid in [each.pid for each in sandbox.commands.list()]
    assert sandbox.commands.kill(sleeper.pid) and not sandbox.commands.kill(sleeper.pid)
    assert sleeper.wait().outcome == "cancelled"
    trap = sandbox.commands.start("trap 'echo got; exit 4' USR1; echo ready; while :; do sleep 0.01; done")
    output = trap.stream()
    assert next(output).text == "ready\n"
    trap.send_signal("SIGUSR1")
    assert next(output).text == "got\n"
    assert trap.wait().exit_code == 4
    assert not sandbox.commands.kill(99999)


def test_a_terminal(sandbox: Sandbox) -> None:
    pty = sandbox.pty.create(["sh"], columns=91, rows=17)
    pty.send_stdin("stty size; read x; stty size; exit 5\n")
    output = pty.stream()
    seen = ""
    while "17 91" not in seen:
        seen += next(output).text
    pty.resize(40, 11)
    pty.send_stdin("\n")
    result = pty.wait()
    assert "11 40" in result.stdout and result.exit_code == 5


def test_files(sandbox: Sandbox) -> None:
    files = sandbox.files
    entry = files.write("a/b.txt", "é", mode=0o600)
    assert (entry.path, entry.size, entry.mode & 0o777, entry.type) == ("/workspace/a/b.txt", 2, 0o600, "file")
    assert files.read("a/b.txt") == "é" and files.read("/workspace/a/b.txt", "bytes") == "é".encode()
    files.write("pieces", iter([b"1", b"", b"23"]))
    assert files.read("pieces") == "123"
    files.write("text", io.StringIO("text"))
    with files.stream("text", offset=1, length=2) as pieces:
        assert b"".join(pieces) == b"ex"
    files.make_dir("d/e")
    assert files.move("pieces", "d/moved").path == "/workspace/d/moved"
    files.copy("d", "copy")
    names = [each.path for each in files.list(depth=3)]
    assert "/workspace/copy/moved" in names and "/workspace/copy/e" in names
    assert files.stat("d").type == "directory"
    files.remove("d")
    assert not files.exists("d") and files.exists("copy")
    with files.archive("copy") as archive:
        packed = b"".join(archive)
    files.extract("out", packed)
    assert files.exists("out")
    with pytest.raises(NotFound):
        files.read("nothing")
    with pytest.raises(InvalidArguments):
        files.write("/workspace/\0", "x")


def test_data_are_text_bytes_or_pieces_of_them(sandbox: Sandbox) -> None:
    files, cat = sandbox.files, sandbox.commands.start("cat", stdin=True)
    files.write("kept", ["a", b"b", bytearray(b"c"), memoryview(b"d")])
    others: List[Any] = [None, 5, {}, {"a": 1}, object()]
    for data in others:
        expected = f"^expected text, bytes, a file, or an iterable of text or bytes for the data, got {type(data).__name__}$"
        calls: List[Callable[[Any], Any]] = [lambda data: files.write("kept", data), lambda data: files.extract("kept", data), cat.send_stdin]
        for call in calls:
            with pytest.raises(InvalidArguments, match=expected):
                call(data)
    assert files.read("kept") == "abcd"
    cat.kill()


def test_an_upload_whose_source_fails_is_ended(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.write("kept", "old")

    def pieces(last: Any) -> Iterator[Any]:
        yield b"begun"
        if isinstance(last, Exception):
            raise last
        yield last

    mine = ValueError("mine")
    for last, error in [(mine, ValueError), (None, InvalidArguments), (5, InvalidArguments)]:
        with pytest.raises(error, match="mine|^expected text or bytes for each piece of the data, got (NoneType|int)$"):
            files.write("kept", pieces(last))
    near, far = socket.socketpair()
    with near, far, near.makefile("rb", buffering=0) as nothing_yet:
        near.setblocking(False)
        with pytest.raises(InvalidArguments, match="got NoneType"):
            files.write("kept", nothing_yet)
    # The server removes the partial file of a request that has ended.
    while len(files.list()) > 1:
        pass
    assert files.read("kept") == "old"


def test_bytes_that_are_no_text_are_told_from_it(sandbox: Sandbox) -> None:
    sandbox.files.write("p.png", b"\x89PNG\r\n")
    with pytest.raises(RingfenceError, match='p.png is no text.*format="bytes"'):
        sandbox.files.read("p.png")
    assert sandbox.files.read("p.png", format="bytes") == b"\x89PNG\r\n"
    with pytest.raises(RingfenceError, match="'byte'"):
        sandbox.files.read("p.png", format="byte")  # type: ignore[call-overload]


def test_a_local_file_is_not_replaced(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.files.write("a", "new")
    (tmp_path / "there").write_text("old")
    with pytest.raises(FileExistsError):
        sandbox.files.download("a", str(tmp_path / "there"))
    assert (tmp_path / "there").read_text() == "old"
    assert sandbox.files.download("a", str(tmp_path / "new")) == 3
    assert (tmp_path / "new").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["new", "there"]


def test_a_download_that_breaks_off_leaves_nothing(client: Client, tmp_path: Path) -> None:
    """200 MB are more than connections hold: the sandbox ends before they have arrived."""
    with Sandbox(client=client, memory="768MiB", disk="400MiB") as sandbox:
        sandbox.commands.run("head -c 200000000 /dev/zero > large")
        failed: List[BaseException] = []

        def download() -> None:
            try:
                sandbox.files.download("large", str(tmp_path / "large"))
            except BaseException as error:
                failed.append(error)

        downloading = threading.Thread(target=download)
        downloading.start()
        while not os.listdir(tmp_path):
            time.sleep(0.001)
        sandbox.kill()
        downloading.join()
    assert len(failed) == 1 and isinstance(failed[0], RingfenceError), failed
    # A second attempt would fail at a file that is there.
    assert os.listdir(tmp_path) == []


def test_watching(sandbox: Sandbox) -> None:
    with sandbox.files.watch() as changes:
        sandbox.files.write("seen", "x")
        found = next(changes)
        while not (found.type == "create" and found.path == "seen"):
            found = next(changes)


def test_big_files_pass_through(client: Client, tmp_path: Path) -> None:
    """300 MB in and out, in pieces. The limit of the address space would end whoever keeps them."""
    total = 300 * 1000 * 1000
    piece = bytes(range(256)) * 4096
    with open(tmp_path / "big", "wb") as file:
        while file.tell() < total:
            file.write(piece[: total - file.tell()])
    before = _resident()
    with Sandbox(client=client, memory="768MiB", disk="400MiB") as sandbox:
        with open(tmp_path / "big", "rb") as file:
            assert sandbox.files.write("big", file).size == total
        count = 0
        with sandbox.files.stream("big") as pieces:
            for each in pieces:
                start = count % 256
                assert each[:64] == (piece[start:] + piece)[: len(each[:64])]
                count += len(each)
        assert count == total
        assert _resident() - before < 64 << 20
        with open(tmp_path / "big", "rb") as file, pytest.raises(LimitExceeded):
            sandbox.files.write("again", file)
        assert not sandbox.files.exists("again")


def _resident() -> int:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_lives(client: Client, server: Server) -> None:
    with Sandbox("lab", client=client, metadata={"team": "red"}, env={"A": "1"}, timeout="10m") as sandbox:
        assert [each.name for each in Sandbox.list(client=client, metadata={"team": "red"})] == ["lab"]
        assert Sandbox.list(client=client, metadata={"team": "blue"}) == []
        with Sandbox(client=client):
            first = Sandbox.list_page(limit=1, client=client)
            rest = Sandbox.list_page(after=first.next, client=client)
            assert (len(first.sandboxes), len(rest.sandboxes), rest.next) == (1, 1, None)
            assert first.sandboxes[0].name == "lab"
        assert sandbox.commands.run("echo $A").stdout == "1\n"
        before = sandbox.get_info().expires_at
        assert sandbox.set_timeout(3600).expires_at > before
        with pytest.raises(Conflict):
            Sandbox("lab", client=client)
        with Sandbox.connect("lab", socket=server.socket) as other:
            assert other.sandbox_id == sandbox.sandbox_id
        assert sandbox.is_running()
        assert sandbox.kill() and not sandbox.kill() and not sandbox.is_running()
        with pytest.raises(NotFound):
            sandbox.files.exists("a")


def test_each_option_of_the_api_is_an_argument(client: Client) -> None:
    document = json.loads(client._transport._connections().request("GET", "http://localhost/openapi.json").content)
    members = set(document["components"]["schemas"]["CreateSandbox"]["properties"])
    arguments = set(inspect.signature(Sandbox).parameters)
    assert members == arguments - {"client", "connection"}


def test_options_of_the_root_file_system(client: Client, server: Server, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        entry = tarfile.TarInfo("app/data")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"here"))
    command = [BINARY, "image", "import", str(tmp_path / "root.tar"), "--name", "my/root:1"]
    subprocess.run(command, env=server.env, check=True, capture_output=True)
    with Sandbox(client=client, image="my/root:1", fence="run", on_expiry="pause", ports=True) as sandbox:
        assert sandbox.files.read("/app/data") == "here"
        info = sandbox.get_info()
        assert (info.image, info.fence, info.on_expiry, info.ports) == ("docker.io/my/root:1", "run", "pause", True)
        assert info.image_digest
        sandbox.files.write("kept", "x")
        answer = client._transport.json("POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots", json={"name": "base"})
    with Sandbox(client=client, snapshot="base") as again:
        assert again.files.read("kept") == "x"
    client._transport.json("DELETE", f"/snapshots/{answer['id']}")
    with pytest.raises(errors.ApiError, match="packages"):
        Sandbox(client=client, packages="0" * 64)
    with pytest.raises(NotFound, match="base"):
        Sandbox(client=client, snapshot="base")


@needs_box
def test_root_in_a_box(client: Client) -> None:
    with Sandbox(client=client, fence="box") as sandbox:
        assert sandbox.commands.run("id -u").stdout == "0\n"
        assert sandbox.get_info().fence == "box"


def test_errors_are_typed(client: Client, sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArguments) as invalid:
        sandbox.set_timeout("never")
    assert invalid.value.status == 422 and invalid.value.type == "invalid_arguments"
    with pytest.raises(NotFound) as missing:
        client.call_tool("no_such_tool")
    assert missing.value.request_id
    with pytest.raises(PermissionDenied):
        client.call_tool("host_exec", command="true")
    with pytest.raises(RingfenceError):
        sandbox.run_code("1", language="cobol")


def test_arguments_of_another_shape_are_named(client: Client, sandbox: Sandbox) -> None:
    size = "`1 parsec` is not a size; write it like `10KiB` or `256MiB`"
    for options, expected in [
        ({"memory": "1 parsec"}, f"`memory`: {size}"),
        ({"timeout": "5m", "disk": "1 parsec", "metadata": {"é": "1"}}, f"`disk`: {size}"),
        ({"metadata": {"é": "1"}, "runtime": "x"}, "`runtime`: `x` is not one of `local`, `docker`, `podman`"),
        ({"cpus": 1, "env": {"A": 1}, "pids": 9}, "`env.A`: invalid type: integer `1`, expected a string"),
        ({"allowed_hosts": ["?"]}, "`allowed_hosts`: a host cannot contain `?`; write only the name, like `example.com`"),
    ]:
        with pytest.raises(InvalidArguments) as invalid:
            Sandbox(client=client, **options)
        assert str(invalid.value) == expected and invalid.value.hint == ""
    with pytest.raises(InvalidArguments, match="^`timeout`: `late` is not a duration; write it like .*2m`$"):
        sandbox.commands.run("true", timeout="late", on_stdout=print)


def test_programs_tools_and_batches(client: Client) -> None:
    result = client.run("import sys; print(sys.stdin.read(), open('a').read())", stdin="in", files={"a": "file"})
    assert result.ok and result.stdout == "in file\n"
    pieces: List[str] = []
    streamed = client.run("echo one; exit 3", "bash", on_stdout=pieces.append)
    assert pieces == ["one\n"] and streamed.exit_code == 3 and streamed.outcome == "exited"
    assert client.run("while True: pass", timeout=0.2).outcome == "timed_out"
    items = {item.index: item for item in client.batch(["print(1)", {"code": "exit 2", "language": "bash"}, {"code": 1}])}
    assert items[0].result is not None and items[0].result.stdout == "1\n"
    assert items[1].result is not None and items[1].result.exit_code == 2
    assert isinstance(items[2].error, InvalidArguments) and items[2].result is None
    assert "run_code" in [tool.name for tool in client.tools()]
    assert client.call_tool("run_code", code="print(2)").structured["stdout"] == "2\n"


def test_threads_share_a_sandbox(sandbox: Sandbox) -> None:
    wrong: Dict[int, Any] = {}

    def work(number: int) -> None:
        for round_ in range(5):
            text = f"{number}-{round_}"
            sandbox.files.write(f"t{number}", text)
            got = sandbox.commands.run(["cat", f"t{number}"]).stdout, sandbox.files.read(f"t{number}")
            if got != (text, text):
                wrong[number] = got

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == {}


def test_a_fork_has_connections_of_its_own(sandbox: Sandbox) -> None:
    assert sandbox.run_code("1").text == "1"
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, sandbox.commands.run("echo child").stdout.encode())
        os._exit(0)
    os.close(write)
    assert sandbox.commands.run("echo parent").stdout == "parent\n"
    assert os.read(read, 100) == b"child\n"
    os.waitpid(pid, 0)
    os.close(read)


def test_a_fork_that_leaves_the_with_leaves_the_sandbox(server: Server) -> None:
    with Sandbox(socket=server.socket) as sandbox:
        pid = os.fork()
        if pid == 0:
            try:
                with sandbox:
                    assert sandbox.commands.run("echo child").stdout == "child\n"
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert sandbox.is_running()
    assert Sandbox.list(socket=server.socket) == []


def test_over_tcp_with_a_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_API_URL", server.url)
    with pytest.raises(errors.Unauthenticated):
        Sandbox.list()
    monkeypatch.setenv("RINGFENCE_API_KEY", KEY)
    # A proxy of the environment does not get what is for this machine.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with Sandbox() as sandbox:
        assert sandbox.run_code("6 * 7").text == "42"
        with pytest.raises(PermissionDenied):
            Sandbox(allowed_hosts=["example.com"])
    with pytest.raises(PermissionDenied):
        Client().tools()
    assert KEY not in repr(Client()._transport.address)


def test_a_server_without_a_route_is_named(client: Client) -> None:
    with pytest.raises(IncompatibleServer, match="no route POST /v1/from/the/future"):
        client._transport.json("POST", "/from/the/future", json={})
    with pytest.raises(IncompatibleServer, match="no route DELETE /v1/run"):
        client._transport.json("DELETE", "/run")
