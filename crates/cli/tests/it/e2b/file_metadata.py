"""Metadata of files, which programs neither set nor keep."""

import errno
import os
import pathlib
import tempfile

from e2b import InvalidArgumentException, NotEnoughSpaceException, Sandbox, SandboxException

sandbox = Sandbox.create()
files = sandbox.files


def of(path):
    return files.get_info(path).metadata


def run(line):
    return sandbox.commands.run(line).stdout


def refused(kind, part, **metadata):
    try:
        files.write("refused", "x", metadata=metadata)
    except kind as error:
        assert part in str(error), error
    else:
        raise AssertionError("stored")


own = {"author": "mish", "purpose": "a \"b\""}
assert files.write("a", "1", metadata={"Author": "mish", "purpose": own["purpose"]}).metadata == own
assert of("a") == own and [each.metadata for each in files.list(".") if each.name == "a"] == [own]

# They are the file's, under every name, and not the name's.
run("ln a b && mv a c && echo 2 > a && echo changed >> c")
assert (of("a"), of("b"), of("c")) == (None, own, own)
assert files.rename("c", "d").metadata == own
run("ln -s d link && cp d copy")
assert of("link") == own and of("copy") is None
for _ in range(20):
    run("rm -f new && echo 3 > new")
    assert of("new") is None
assert files.write("d", "4").metadata is None
assert of("d") is None and of("b") == own

# Programs cannot set them. Outside, one can.
act = "import os; os.setxattr({!r}, 'user.e2b.author', b'other')"
outside = pathlib.Path(tempfile.mkdtemp(dir=".")) / "file"
outside.write_text("1")
exec(act.format(str(outside)))
assert os.getxattr(outside, "user.e2b.author") == b"other"
denied = sandbox.commands.run(f'python3 -c "{act.format("b")}" 2>&1 || true').stdout
assert f"[Errno {errno.EOPNOTSUPP}]" in denied, denied
assert of("b") == own

# Copies have files alone.
snapshot = sandbox.create_snapshot()
copy = Sandbox.create(snapshot.snapshot_id)
assert copy.files.read("b") == "1changed\n" and copy.files.get_info("b").metadata is None
copy.kill()
assert Sandbox.delete_snapshot(snapshot.snapshot_id)

# They are bounded: for a file, and for a sandbox.
refused(SandboxException, "at most 4096 bytes", a="x" * 4096)
refused(InvalidArgumentException, "printable", a="\x7f")
much = {"a": "x" * 4000}
try:
    for number in range(1000):
        files.write("many/%d" % number, "x", metadata=much)
except NotEnoughSpaceException as error:
    assert "at most 1024 KiB" in str(error), error
assert 200 < number < 300, number
assert not files.exists("many/%d" % number)
assert files.write("more", "x").metadata is None
files.write("many/0", "x")
files.write("more", "x", metadata=much)
sandbox.kill()
print("done")
