"""The calls of an agent that moves here from E2B, by E2B's own client. Addresses and key come from the environment."""

from e2b import ALL_TRAFFIC, SandboxException
from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create()
assert sandbox.is_running()
done = sandbox.commands.run("echo hi; echo oops >&2")
assert (done.stdout, done.stderr, done.exit_code) == ("hi\n", "oops\n", 0), done
sandbox.files.write("dir/file.txt", "content")
assert sandbox.files.read("dir/file.txt") == "content"
assert [entry.name for entry in sandbox.files.list("dir")] == ["file.txt"]
told = sandbox.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID").stdout
assert told == f"true {sandbox.sandbox_id}\n", told
assert sandbox.commands.run("cat dir/file.txt").stdout == "content"
assert sandbox.files.write("zipped", "content", gzip=True).path == "/home/user/zipped"
assert sandbox.files.read("zipped") == sandbox.files.read("zipped", gzip=True) == "content"
where = sandbox.commands.run("whoami; pwd; echo ~; ls /home; readlink -f zipped; stat -c %d:%i /workspace . | uniq | wc -l").stdout.split()
assert where == ["user", "/home/user", "/home/user", "user", "/home/user/zipped", "1"], where
made = sandbox.commands.run("touch /home/other 2>&1 || mkdir /home/other 2>&1 || echo none").stdout
assert made.count("Permission denied") + made.count("Read-only file system") == 2 and made.endswith("none\n"), made
assert sandbox.run_code("import os; os.getcwd(), os.path.expanduser('~')").text == "('/home/user', '/home/user')"
assert sandbox.run_code("x = 1; x + 1").text == "2"
# Root's home is there, and empty.
of_root = sandbox.create_code_context(cwd="/root")
assert sandbox.run_code("import os; os.getcwd(), os.listdir()", context=of_root).text == "('/root', [])"
made = sandbox.commands.run("touch /root/x 2>&1 || echo none").stdout
assert "Permission denied" in made or "Read-only file system" in made, made
printed = sandbox.run_code("print(x); 'text'")
assert (printed.logs.stdout, printed.text) == (["1\n"], "text"), printed
# Lines that are no Python but commands.
shell = sandbox.run_code("name = 'x'\n!pwd\nif name:\n    !exit 3\n    print(_exit_code)\n    !echo $((40 + 2)) \"it's\"\n_exit_code")
assert ("".join(shell.logs.stdout), shell.text) == ("/home/user\n3\n42 it's\n", "0"), shell
assert sandbox.run_code("'''\n!pwd\n'''").text == "\\n!pwd\\n"
assert sandbox.run_code("!pwd\n1 +").error.name == "SyntaxError"
assert "Wall time" in "".join(sandbox.run_code("%matplotlib inline\n%time 6 * 7").logs.stdout)
assert sandbox.run_code("%nothing").error.name == "UsageError"
assert "pip" in "".join(sandbox.run_code("%pip --version").logs.stdout + sandbox.run_code("%pip --version").logs.stderr)
typed = sandbox.run_code("enum E { A = 41 }; const x: number = E.A; x + 1", language="ts")
assert typed.text == "42" or "TypeScript needs Node.js 22.13" in typed.error.value, typed
error = sandbox.run_code("1 / 0").error
assert (error.name, error.value) == ("ZeroDivisionError", "division by zero"), error
sandbox.update_network({"deny_out": [ALL_TRAFFIC]})
try:
    sandbox.update_network({"allow_out": ["example.test"]})
    raise AssertionError("a host is open")
except SandboxException as refused:
    assert "not supported: the host `example.test` in `network.allowOut`" in str(refused), refused
assert sandbox.kill() and not sandbox.kill() and not sandbox.is_running()
print("done")
