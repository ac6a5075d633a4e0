"""Pauses, snapshots and forks, by E2B's own client."""

from e2b import SandboxException
from e2b_code_interpreter import Sandbox, SandboxQuery, SandboxState

sandbox = Sandbox.create(metadata={"of": "copies"})
sandbox.files.write("kept.txt", "kept")
sandbox.run_code("x = 41")

assert sandbox.pause() and not sandbox.pause() and not sandbox.is_running()
paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED], metadata={"of": "copies"})).next_items()
assert [info.sandbox_id for info in paused] == [sandbox.sandbox_id], paused
resumed = Sandbox.connect(sandbox.sandbox_id)
assert resumed.is_running()
assert resumed.run_code("x + 1").text == "42"

snapshot = resumed.create_snapshot()
made = Sandbox.create(template=snapshot.snapshot_id)
assert made.files.read("kept.txt") == "kept"
listed = resumed.list_snapshots().next_items()
assert [known.snapshot_id for known in listed] == [snapshot.snapshot_id], listed
assert Sandbox.delete_snapshot(snapshot.snapshot_id) and not Sandbox.delete_snapshot(snapshot.snapshot_id)
try:
    Sandbox.create(template=snapshot.snapshot_id)
    raise AssertionError("a snapshot that is gone was used")
except SandboxException as error:
    assert "was not found" in str(error), error

forks = resumed.fork(count=2)
for fork in forks:
    copy = getattr(fork, "sandbox", fork)
    assert copy.files.read("kept.txt") == "kept"
    copy.files.write("kept.txt", "changed")
    copy.kill()
assert resumed.files.read("kept.txt") == "kept"
made.kill()
resumed.kill()
print("done")
