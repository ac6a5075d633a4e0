"""Directories into sandboxes and out of them, of which some are hostile."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import tarfile
import threading
from pathlib import Path
from typing import Callable, List, Tuple

import pytest

from conftest import Server
from ringfence import AsyncSandbox, DownloadedDir, IncompatibleServer, LimitExceeded, RingfenceError, Sandbox, ServerGone
from ringfence import _unpack
from ringfence._protection import ends_protected
from ringfence._pack import packed
from ringfence._unpack import Unpacker, new_tree

LONG = "n" * 150


def _tree(root: Path) -> None:
    (root / "deep/empty").mkdir(parents=True)
    (root / "deep/run").write_text("echo hi\n")
    (root / "deep/run").chmod(0o755)
    (root / LONG).write_bytes(bytes(range(256)) * 3000)
    (root / "é\n").write_text("x")
    os.utime(root / "é\n", (978307200, 978307200))
    (root / "link").symlink_to("deep/run")
    os.link(root / "deep/run", root / "hard")


def _shown(root: Path) -> List[Tuple[str, object]]:
    """Returns what a tree has."""
    found: List[Tuple[str, object]] = []
    for path in sorted(root.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found.append((f"{path.relative_to(root)} {path.lstat().st_mode:o}", content))
    return found


def test_a_directory_goes_in_and_out(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    _tree(source)
    os.mkfifo(source / "fifo")
    sent = sandbox.files.upload_dir(str(source), "new/copy")
    assert (sent.entries, sent.skipped, sent.named) == (7, 0, [])
    (source / "fifo").unlink()
    assert sandbox.commands.run(["sh", "-c", "cd new/copy; ./deep/run; readlink link"]).stdout == "hi\ndeep/run\n"
    sandbox.commands.run("cd new/copy; ln -s / out; ln -s deep/../.. up; mkfifo fifo; chmod 500 deep; chmod u+s deep/run; rm hard; ln deep/run hard")
    got = sandbox.files.download_dir("new/copy", str(tmp_path / "back"))
    assert (sorted(got.left_out), got.entries, got.bytes) == (["out", "up"], 7, sent.bytes - 8)
    (source / "deep").chmod(0o500)
    assert _shown(tmp_path / "back") == _shown(source)
    assert (tmp_path / "back/hard").samefile(tmp_path / "back/deep/run")
    assert (tmp_path / "back/é\n").stat().st_mtime == 978307200
    assert sorted(os.listdir(tmp_path)) == ["back", "source"]


def test_what_programs_of_this_machine_obey_is_left_out(sandbox: Sandbox, tmp_path: Path) -> None:
    made = "mkdir -p d/a/.GIT/hooks d/bare/objects; cd d; echo x > a/.GIT/hooks/post-checkout; ln -s /bin .vscode; echo y > .envrc; touch kept a/m.pyc; "
    made += "ln .envrc z-linked; mkdir bare/refs; echo ref: x > bare/HEAD; echo z > bare/config"
    sandbox.commands.run(made, check=True)
    got = sandbox.files.download_dir("d", str(tmp_path / "got"))
    there = {str(path.relative_to(tmp_path / "got")) for path in (tmp_path / "got").rglob("*")}
    # The directory's order says which of the two names is the link, and what completes the repository.
    assert {"kept", "a", "bare", "bare/config"} <= there and not there & {"a/.GIT", ".vscode", ".envrc", "a/m.pyc"}
    assert not {"bare/HEAD", "bare/objects", "bare/refs"} <= there
    assert {"a/.GIT", ".vscode", ".envrc", "a/m.pyc"} <= set(got.protected) and got.left_out == got.protected
    assert {name for name in got.protected if name.startswith("bare")} == {"bare/HEAD", "bare/objects", "bare/refs"} - there
    assert not any("/hooks" in name for name in got.protected) and got.entries == len(there)
    asked = sandbox.files.download_dir("d", str(tmp_path / "whole"), include_protected=True)
    assert (asked.left_out, asked.protected) == ([".vscode"], [])
    assert (tmp_path / "whole/a/.GIT/hooks/post-checkout").read_text() == "x\n"
    assert sandbox.files.download("d/.envrc", str(tmp_path / ".envrc")) == 2


def test_what_cannot_be_copied_leaves_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.files.write("d/a", "x")
    sandbox.commands.run("truncate -s 100M d/hole")
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(FileExistsError):
        sandbox.files.download_dir("d", str(there))
    with pytest.raises(RingfenceError, match="more than 1000000 bytes.*max_size"):
        sandbox.files.download_dir("d", str(tmp_path / "new"), max_size=1_000_000)
    with pytest.raises(RingfenceError, match="use `download`"):
        sandbox.files.download_dir("d/a", str(tmp_path / "new"))
    with pytest.raises(FileNotFoundError):
        sandbox.files.upload_dir(str(tmp_path / "nothing"), "d")
    (there / "large").write_bytes(b"")
    os.truncate(there / "large", 400 << 20)
    with pytest.raises(LimitExceeded):
        sandbox.files.upload_dir(str(there), "e")
    assert os.listdir(tmp_path) == ["there"]


def test_the_same_with_asyncio(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    _tree(tmp_path / "source")

    async def work() -> None:
        async with AsyncSandbox(socket=server.socket) as sandbox:
            await sandbox.files.upload_dir(str(tmp_path / "source"), "copy")
            with monkeypatch.context() as patched:
                for name in ("mkdir", "chmod", "link", "rename", "symlink", "utime"):
                    patched.setattr(os, name, _elsewhere(getattr(os, name)))
                got = await sandbox.files.download_dir("copy", str(tmp_path / "back"))
            assert got.left_out == []
            await sandbox.commands.run("head -c 50000000 /dev/zero > copy/large")
            await _cancelled_download(sandbox, tmp_path)
            with pytest.raises(RingfenceError, match="more than 1000 bytes"):
                await sandbox.files.download_dir("copy", str(tmp_path / "new"), max_size=1000)
            with pytest.raises(FileExistsError):
                await sandbox.files.download_dir("copy", str(tmp_path / "back"))

    asyncio.run(work())
    assert sorted(os.listdir(tmp_path)) == ["back", "source"]
    assert _shown(tmp_path / "back") == _shown(tmp_path / "source")


def _elsewhere(work: Callable[..., object]) -> Callable[..., object]:
    """Returns a function that does not work in the event loop's thread."""

    def checked(*arguments: object, **options: object) -> object:
        assert threading.current_thread() is not threading.main_thread()
        return work(*arguments, **options)

    return checked


async def _cancelled_download(sandbox: AsyncSandbox, root: Path) -> None:
    """Cancels a download while it writes a file."""
    writing = threading.Event()

    class Noted(Unpacker):
        def _write(self, content: bytes) -> None:
            writing.set()
            super()._write(content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_unpack, "Unpacker", Noted)
        download = asyncio.create_task(sandbox.files.download_dir("copy", str(root / "new")))
        await asyncio.to_thread(writing.wait)
        download.cancel()
        with pytest.raises(asyncio.CancelledError):
            await download
    assert not [name for name in os.listdir(root) if name.startswith(".")]


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", content: bytes = b"") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(content)
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)


def _extended(*values: bytes, count: bytes = b"") -> bytes:
    """Returns a member with the records `N=VALUE`, which all claim a length of `count`."""
    records = b""
    for number, value in enumerate(values):
        record = b" %d=%b\n" % (number, value)
        length = next(length for length in range(len(record), len(record) + 9) if length == len(b"%d" % length) + len(record))
        records += (count or b"%d" % length) + record
    return _member("extended", tarfile.XHDTYPE, content=records) + _member("a")


END = bytes(1024)
DIR, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "archive",
    [
        _member("../out", content=b"x") + END,
        _member("/tmp/out", content=b"x") + END,
        _member("a/../../out") + END,
        _member("./a") + END,
        _member("a//b") + END,
        _member("") + END,
        _member("missing/a") + END,
        _member("a") + _member("a") + END,
        _member("a") + _member("a/b") + END,
        # Through links that the archive brings.
        _member("a", LINK, "/") + _member("a/out") + END,
        _member("a", LINK, "..") + _member("a", DIR) + END,
        _member("a", LINK, "b") + _member("a", LINK, "c") + END,
        # A link's parent is a link or missing.
        _member("d", LINK, ".") + _member("d/x", LINK, "..") + END,
        _member("d", LINK, ".") + _member("d/" * 5 + "evil", LINK, "../../../../../etc/passwd") + END,
        _member("missing/x", LINK, "y") + END,
        _member("a") + _member("a/x", LINK, "y") + END,
        _member("d", LINK, ".") + _member("d/x", HARD, "y") + END,
        _member("a") + END + _member("b") + END,
        END + b"\1" * 512,
        _extended(b"a" * 9000, b"b" * 9000) + END,
        _extended(b"a", count=b"1") + END,
        _extended(b"a", count=b"0") + END,
        _member("a", HARD, "/etc/passwd") + END,
        _member("a", HARD, "../outside") + END,
        _member("a", LINK, "x") + _member("b", HARD, "a") + END,
        _member("a", tarfile.FIFOTYPE) + END,
        _member("a", tarfile.CHRTYPE) + END,
        _member("a", tarfile.GNUTYPE_LONGNAME, content=b"../out\0") + END,
        _member("a", LINK, "b", content=b"x") + END,
        _member("x" * 300, DIR) + END,
        b"a" * 512 + END,
        _member("a")[:-1] + b"\1" + END,
        _member("n" * 101).replace(b" path=", b" path\0") + END,
        _member("n" * 101).replace(b"nnn\n", b"n\0n\n", 1) + END,
    ],
)
def test_a_hostile_archive_makes_nothing(archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("kept")
    for size in (1, 700, len(archive)):
        with pytest.raises((IncompatibleServer, OSError)), new_tree(str(tmp_path / "new"), 1 << 20) as tree:
            for at in range(0, len(archive), size):
                tree.feed(archive[at : at + size])
        assert os.listdir(tmp_path) == ["outside"]


@pytest.mark.parametrize(
    ("place", "target", "stays"),
    [
        ("l", "a", True),
        ("d/l", "../a", True),
        ("d/l", ".././d/e", True),
        ("d/l", "..", True),
        ("l", "..", False),
        ("l", "../d", False),
        ("d/l", "../../d", False),
        ("l", "/etc", False),
        ("l", "d/..", False),
        ("d/l", "../d/../..", False),
        ("l", "", False),
    ],
)
def test_links_stay_if_they_cannot_lead_out(place: str, target: str, stays: bool, tmp_path: Path) -> None:
    with new_tree(str(tmp_path / "new"), 1 << 20) as tree:
        tree.feed(_member("d", DIR) + _member(place, LINK, target) + END)
    assert os.path.islink(tmp_path / "new" / place) == stays
    assert tree.result == DownloadedDir(1 + stays, 0, [] if stays else [place])


def test_an_archive_that_breaks_off_makes_nothing(tmp_path: Path) -> None:
    whole = _member("d", DIR) + _member("d/a", content=b"x" * 600)
    for count in (0, 100, 512, 1100, len(whole)):
        with pytest.raises(ServerGone), new_tree(str(tmp_path / "new"), 1 << 20) as tree:
            tree.feed(whole[:count])
        assert os.listdir(tmp_path) == []


def test_any_cut_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    _tree(tmp_path / "source")
    archive = b"".join(packed(str(tmp_path / "source")))
    assert sorted(tarfile.open(fileobj=io.BytesIO(archive)).getnames()) == sorted(
        str(path.relative_to(tmp_path / "source")) for path in (tmp_path / "source").rglob("*")
    )
    for size in (7, 511, 512, 513, 100_000):
        with new_tree(str(tmp_path / f"new{size}"), 1 << 30) as tree:
            for at in range(0, len(archive), size):
                tree.feed(archive[at : at + size])
        assert _shown(tmp_path / f"new{size}") == _shown(tmp_path / "source")


def test_rights_are_those_of_new_files(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a")
    info.mode = 0o7777
    before = os.umask(0o027)
    try:
        unpacker = Unpacker(str(tmp_path), 1 << 20)
        unpacker.feed(info.tobuf(tarfile.PAX_FORMAT) + END)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o750


def test_what_follows_the_end_counts(tmp_path: Path) -> None:
    with pytest.raises(RingfenceError, match="more than 4096 bytes.*max_size"), new_tree(str(tmp_path / "new"), 4096) as tree:
        for _ in range(9):
            tree.feed(bytes(512))
    with new_tree(str(tmp_path / "kept"), 4096) as tree:
        tree.feed(_extended(b"v" * 300) + END)
    assert os.listdir(tmp_path) == ["kept"]


def test_too_many_entries_are_refused_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unpack, "MAX_ENTRIES", 2)
    two = _member("a") + _member("b")
    with new_tree(str(tmp_path / "two"), 1 << 20) as tree:
        tree.feed(two + END)
    with pytest.raises(RingfenceError, match="more than 2 entries"), new_tree(str(tmp_path / "three"), 1 << 20) as tree:
        tree.feed(two + _member("c") + END)
    assert os.listdir(tmp_path) == ["two"]


@pytest.mark.parametrize("archive", [_member("a\x1b[2J/x", LINK, "y"), _member("\x1b[2J") * 2, _member("\x1b[2J") + _member("\x1b[2J", LINK, "y")])
def test_names_in_errors_have_no_control_characters(archive: bytes, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleServer, match=r"\\x1b\[2J") as raised, new_tree(str(tmp_path / "new"), 1 << 20) as tree:
        tree.feed(archive + END)
    assert str(raised.value).isprintable()


def test_what_cannot_be_moved_to_its_name_leaves_no_directory_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), new_tree(str(tmp_path / "new"), 1 << 20) as tree:
        tree.feed(END)
        for path in tmp_path.iterdir():
            path.rmdir()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("directory", ["a", "a/b"])
def test_a_link_that_replaces_a_directory_while_it_is_packed_is_not_followed(directory: str, tmp_path: Path) -> None:
    _replaceable(tmp_path)
    pieces = packed(str(tmp_path / "source"))
    # The heads of the directories down to this one.
    got = [next(pieces) for _ in directory.split("/")]
    _replace(tmp_path, directory)
    got.extend(pieces)
    assert b"a/b/own" in b"".join(got)
    assert b"secret" not in b"".join(got)


@pytest.mark.parametrize("directory", ["a", "a/b", "a/b/own"])
def test_a_link_in_the_place_of_what_was_listed_is_an_error(
    directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _replaceable(tmp_path)
    real_open = os.open

    def replacing_open(path: str, *arguments: int, **options: int) -> int:
        if path == os.path.basename(directory) and not (tmp_path / "moved").exists():
            _replace(tmp_path, directory)
        return real_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", replacing_open)
    with pytest.raises(RingfenceError, match=f"source/{directory}' was replaced"):
        b"".join(packed(str(tmp_path / "source")))


def _replaceable(root: Path) -> None:
    (root / "source/a/b").mkdir(parents=True)
    (root / "source/a/b/own").write_text("own")
    (root / "outside").mkdir()
    (root / "outside/secret").write_text("secret")


def _replace(root: Path, directory: str) -> None:
    (root / "source" / directory).rename(root / "moved")
    (root / "source" / directory).symlink_to(root / "outside")


@pytest.mark.parametrize(
    "names, expected",
    [
        (".git|.gIt|.git. .|.g\u200cit|.g\xadit|\uff0e\uff47it|.g\u0131t|.v\u017fcode|.hus\u212ay|\u017fitecu\ufb06omize.py|GIT~1|git~12", True),
        ("RINGFE~1.TOM|.git::$INDEX_ALLOCATION|.git\x01|tests/conftest.py|a.PTH.|.pth|__PyCache__|m.pyc|a/.rprofile|.mise", True),
        ("git|.gitignore|a.git.txt|.git/x|notes~1.txt|~|a~|~1|\u65e5|conftest.txt|a.pth.txt|.venvs|a:b|\u017f|m.py", False),
    ],
)
def test_names_are_compared_as_the_server_does(names: str, expected: bool) -> None:
    for name in names.split("|"):
        assert ends_protected(name.encode().split(b"/")) is expected, ascii(name)


def test_what_is_below_or_linked_to_a_protected_name_is_left_out(tmp_path: Path) -> None:
    members = [(".git", tarfile.DIRTYPE, ""), (".git/d", tarfile.DIRTYPE, ""), (".git/d/f", tarfile.REGTYPE, "")]
    members += [("l", tarfile.LNKTYPE, ".git/d/f"), (".git/l", tarfile.SYMTYPE, "/"), ("commondir", tarfile.REGTYPE, "")]
    archive = b"".join(_member(*each, content=b"x" * 600 if each[1] == tarfile.REGTYPE else b"") for each in members) + bytes(1024)
    with new_tree(str(tmp_path / "new"), 1 << 20) as tree:
        tree.feed(archive)
    assert tree.result == DownloadedDir(0, 0, [".git", "l", "commondir"], [".git", "l", "commondir"])
    assert os.listdir(tmp_path / "new") == []
