"""Templates: built, used and built upon, by E2B's own client."""

import pathlib

from e2b import BuildException, Sandbox, SandboxException, Template

context = pathlib.Path("context")
(context / "tree/deep").mkdir(parents=True)
(context / "one.txt").write_text("one\n")
(context / "tree/deep/two.txt").write_text("two\n")
IMAGE = "test/tools:1"


def template():
    return Template(file_context_path=str(context))


def refused(template, part, name="refused"):
    try:
        Template.build(template, name)
    except BuildException as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"built: {part}")


def run(sandbox, line):
    return sandbox.commands.run(line).stdout


tools = (
    template()
    .from_image(IMAGE)
    .run_cmd("mkdir /opt/app && echo installed > /opt/app/file && rm /etc/os-release && chown 33:34 /opt/app/file")
    .copy("one.txt", "/opt/app/")
    .copy("tree", "/opt/tree", user="5:6", mode=0o755)
    .set_envs({"MODE": "fast", "OTHER": "1"})
    .set_workdir("/opt/app")
    .run_cmd('echo "$MODE in $PWD" > mode; cat one.txt')
    .set_start_cmd("cat /opt/app/mode > /tmp/started", "test -s /tmp/started")
)
assert not Template.exists("tools")
log = []
built = Template.build(tools, "tools", memory_mb=512, on_build_logs=lambda entry: log.append(entry.message))
assert Template.exists("tools")
assert "one" in log and "COPY tree /opt/tree" in log, log

sandbox = Sandbox.create("tools", envs={"OTHER": "2"})
assert run(sandbox, "id -u; pwd; cat /tmp/started file; echo $MODE $OTHER") == (
    "0\n/opt/app\nfast in /opt/app\ninstalled\nfast 2\n"
)
assert run(sandbox, "stat -c %u:%g:%a file /opt/tree/deep/two.txt; ls /etc/os-release || true") == (
    "33:34:644\n5:6:755\n"
)
sandbox.files.write("/etc/own", "own")
assert run(sandbox, "cat /etc/own") == "own"
assert sandbox.commands.run("id -un", user="root").stdout == "root\n"
sandbox.kill()

# On a template, by its id; and in place of the first one.
more = template().from_template(built.template_id).run_cmd("echo more >> file")
assert Template.build(more, "tools").template_id != built.template_id
sandbox = Sandbox.create("tools")
assert run(sandbox, "cat file; cat /tmp/started") == "installed\nmore\nfast in /opt/app\n"
sandbox.kill()

refused(template().from_image(IMAGE).run_cmd("echo why >&2; exit 3"), "exit status 3:\nwhy")
refused(template().from_image(IMAGE).copy("**/*.txt", "/opt/").copy("**", "/opt/"), "no `**`")

# A pattern copies its matches, and nothing else.
(context / "tree/three.txt").write_text("three\n")
(context / "tree/other").write_text("other\n")
matched = template().from_image(IMAGE).copy("tree/*.txt", "found").copy("tree/*", "/opt/all", mode=0o600)
matched = matched.run_cmd("cd found; ls > /opt/found; ls -R /opt/all >> /opt/found; stat -c %a /opt/all/other >> /opt/found")
Template.build(matched.run_cmd("cat found/three.txt"), "matched")
sandbox = Sandbox.create("matched")
assert run(sandbox, "cat /opt/found") == (
    "three.txt\n/opt/all:\ndeep\nother\nthree.txt\n\n/opt/all/deep:\ntwo.txt\n600\n"
), run(sandbox, "cat /opt/found")
sandbox.kill()

# A start command that does not become ready: its error has the output of both commands, and what its programs lack.
turn = "n=$(cat /tmp/n || echo 0); echo $((n + 1)) > /tmp/n; [ $n -lt 20 ] || { echo turn $n >&2; kill -9 $$; }; false"
Template.build(template().from_image(IMAGE).set_start_cmd("echo begun; exit 3", turn), "unready")
try:
    Sandbox.create("unready")
except SandboxException as error:
    for part in ["turn 20", "the start command has ended with exit status 3", "begun", "have no TCP sockets"]:
        assert part in str(error), (part, error)
else:
    raise AssertionError("ready")
assert Sandbox.delete_snapshot("matched") and Sandbox.delete_snapshot("unready")
refused(template().from_image("debian:12"), "the operator allows `test/tools:1`")
refused(template().from_image(IMAGE).set_user("other"), "not supported")
refused(template().from_template("missing"), "you have built no template `missing`")
refused(template().from_image(IMAGE), "tags of templates", name="tools:v1")
assert Template.exists("base") and Template.exists("tools") and not Template.exists("refused")
assert Sandbox.delete_snapshot("tools") and not Template.exists("tools")
print("done")
