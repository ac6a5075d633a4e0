"""Pauses, snapshots and forks, by E2B's own client."""

import os
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timedelta, timezone

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

# Processes would be missing in a sandbox made of it.
address = f"{os.environ['E2B_API_URL']}/sandboxes/{resumed.sandbox_id}/snapshots"
headers = {"X-API-KEY": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
try:
    urllib.request.urlopen(urllib.request.Request(address, b'{"memory": true}', headers))
    raise AssertionError("a snapshot with memory was made")
except urllib.error.HTTPError as error:
    assert (error.code, "keeps the files" in error.read().decode()) == (501, True)
assert resumed.list_snapshots().next_items() == []

forks = resumed.fork(count=2)
for fork in forks:
    copy = getattr(fork, "sandbox", fork)
    assert copy.files.read("kept.txt") == "kept"
    copy.files.write("kept.txt", "changed")
    copy.kill()
assert resumed.files.read("kept.txt") == "kept"
made.kill()
resumed.kill()

# A paused sandbox wakes for who has its token, if it was created so, and for nobody else.
waking = {"on_timeout": "pause", "auto_resume": True}
private = {"allow_public_traffic": False}


def health(sandbox, headers, query=""):
    address = os.environ["E2B_SANDBOX_URL"] + "/health?" + query
    names = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    try:
        return urllib.request.urlopen(urllib.request.Request(address, headers=names | headers)).status
    except urllib.error.HTTPError as error:
        return error.code


sandbox = Sandbox.create(lifecycle=waking, network=private)
sandbox.run_code("x = 41")
assert sandbox.get_info().lifecycle["auto_resume"] is True
sandbox.pause()
assert health(sandbox, {}) == 502 and health(sandbox, {"X-Access-Token": "wrong"}) == 502
assert sandbox.get_info().state == SandboxState.PAUSED
expired, valid = (
    urllib.parse.urlsplit(sandbox.download_url("kept", use_signature_expiration=seconds)).query for seconds in (-10, 100)
)
assert health(sandbox, {}, expired) == 502 and sandbox.get_info().state == SandboxState.PAUSED
assert health(sandbox, {}, valid) == 204 and sandbox.get_info().state == SandboxState.RUNNING
sandbox.pause()
assert sandbox.run_code("x + 1").text == "42"
info = sandbox.get_info()
assert info.state == SandboxState.RUNNING and info.end_at - datetime.now(timezone.utc) <= timedelta(seconds=300), info
sandbox.kill()
sandbox = Sandbox.create(lifecycle=waking)
sandbox.pause()
assert health(sandbox, {}) == 204 and sandbox.get_info().state == SandboxState.RUNNING
sandbox.kill()

# A pause of the files alone ends all processes, also those that left their command; so does a connection that asks for it.
CODE = "(setsid bash -c 'trap \"\" TERM HUP; while :; do :; done' > /dev/null 2>&1 & echo $!)"


def pauses_of_files(sandbox, pause, how):
    sandbox.files.write("kept.txt", "kept")
    assert sandbox.run_code("x = 41; x").text == "41"
    process = sandbox.commands.run(CODE).stdout.strip()
    assert sandbox.commands.run(f"kill -0 {process} && echo lives").stdout == "lives\n"
    pause(sandbox)
    deadline = datetime.now() + timedelta(seconds=30)
    while sandbox.get_info().state != SandboxState.PAUSED:
        assert datetime.now() < deadline
    assert health(sandbox, {}) == 502, "it woke"
    sandbox.connect(on_resume=how)
    assert sandbox.commands.run(f"kill -0 {process} || echo gone").stdout == "gone\n"
    assert sandbox.files.read("kept.txt") == "kept"
    assert sandbox.run_code("'x' in globals()").text == "False"
    sandbox.kill()


files_alone = {"on_timeout": {"action": "pause", "mode": "filesystem"}}
pauses_of_files(Sandbox.create(lifecycle=waking), lambda sandbox: sandbox.pause(mode="filesystem"), "restore")
pauses_of_files(Sandbox.create(lifecycle=files_alone), lambda sandbox: sandbox.set_timeout(0), "restore")
pauses_of_files(Sandbox.create(), lambda sandbox: sandbox.pause(), "reboot")
print("done")
