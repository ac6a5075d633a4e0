"""Templates: built, used and built upon, by E2B's own client."""

import os
import pathlib

from e2b import BuildException, PtySize, Sandbox, SandboxException, Template
from e2b_code_interpreter import Sandbox as Interpreter

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


def fails(act, part):
    try:
        act()
    except SandboxException as error:
        assert part in str(error), error
    except Exception as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"no error: {part}")


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
built = Template.build(tools, "tools", cpu_count=4, memory_mb=512, on_build_logs=lambda entry: log.append(entry.message))
assert Template.exists("tools")
assert "one" in log and "COPY tree /opt/tree" in log, log

sandbox = Sandbox.create("tools", envs={"OTHER": "2"})
# No more than the machine has.
assert (sandbox.get_info().cpu_count, sandbox.get_info().memory_mb) == (min(4, os.cpu_count()), 512)
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
refused(template().from_template("missing"), "you have built no template `missing`")
refused(template().from_image(IMAGE).run_cmd("id", user="nobody"), "failed to run command 'id'")

# Users: those of steps, of the start command, of programs and of files that clients make.
(context / "Dockerfile").write_text("FROM test/tools:1\nRUN id -u > /opt/root\nCOPY one.txt /opt/one\n")
by_file = template().from_dockerfile(str(context / "Dockerfile")).set_user("ada").set_workdir("own")
by_file = (
    by_file.run_cmd("{ id -un; pwd; echo $HOME; echo x 2> /dev/null > /opt/denied || echo denied; } > steps")
    .copy("one.txt", "one")
    .run_cmd("id -u > /opt/other", user="root")
    .set_start_cmd("id -un > started", "test -s started")
)
Template.build(by_file, "users")
sandbox = Sandbox.create("users")
assert run(sandbox, "id -un; pwd; cat steps started /opt/root /opt/other; stat -c %U:%g steps one /opt/one .") == (
    "ada\n/home/user/own\nada\n/home/user/own\n/home/ada\ndenied\nada\n0\n0\nada:1001\nada:1001\nroot:0\nada:1001\n"
), run(sandbox, "id -un; pwd; cat steps started /opt/root /opt/other; stat -c %U:%g steps one /opt/one .")
assert sandbox.commands.run("id -un; echo $HOME; : > /etc/allowed", user="root").stdout == "root\n/root\n"
assert sandbox.commands.run("id -un; pwd", user="user", cwd="~").stdout == "user\n/home/user\n"
terminal = sandbox.pty.create(PtySize(rows=5, cols=80), user="user")
sandbox.pty.send_stdin(terminal.pid, b"id -u > /tmp/terminal; exit\n")
terminal.wait()
assert run(sandbox, "cat /tmp/terminal") == run(sandbox, "id -u user")
# What is made belongs to the user, in places of root, too; what was there keeps its owner.
made = sandbox.files.write("/opt/new/deep/file", "mine")
assert run(sandbox, "stat -c %U:%g /opt/new /opt/new/deep /opt/new/deep/file /opt") == "ada:1001\n" * 3 + "root:0\n"
sandbox.files.write("/opt/new/deep/file", "of root", user="root")
sandbox.files.write("~/home", "root's", user="root")
sandbox.files.write("home", "ada's")
sandbox.files.write("~/home", "user's", user="user")
assert run(sandbox, "stat -c %U /opt/new/deep/file ~/home; cat ~/home") == "ada\nada\nada's"
assert sandbox.commands.run("cat ~/home; stat -c %U ~/home", user="root").stdout == "root'sroot\n"
sandbox.files.make_dir("~/made/deep", user="user")
sandbox.files.rename("/home/user/home", "/home/user/moved/home", user="user")
assert run(sandbox, "stat -c %U /home/user/made /home/user/made/deep /home/user/moved") == "user\n" * 3
entry = sandbox.files.get_info("~/home", user="user") if sandbox.files.exists("~/home", user="user") else None
listed = {entry.name for entry in sandbox.files.list("~", user="user")}
assert entry is None and {"made", "moved", "own"} <= listed, listed
# A link that a program of the user planted leads its client no further than the user, and root's where it leads.
sandbox.commands.run("echo root > /opt/of-root; echo root > /opt/secret; chmod 600 /opt/secret", user="root")
run(sandbox, "cd ~; ln -s /opt/of-root write; ln -s /opt/secret read; ln -s /opt up")
for act in [
    lambda user: sandbox.files.write("/home/ada/write", "x", user=user),
    lambda user: sandbox.files.write("/home/ada/up/planted/x", "x", user=user),
    lambda user: sandbox.files.read("/home/ada/read", user=user),
    lambda user: sandbox.files.make_dir("/home/ada/up/made", user=user),
    lambda user: sandbox.files.rename("/home/ada/up/of-root", "/home/ada/taken", user=user),
    lambda user: sandbox.files.remove("/home/ada/taken" if user == "root" else "/home/ada/up/secret", user=user),
    lambda user: sandbox.files.write("/opt/secret", "x", user=user),
]:
    fails(lambda: act("ada"), "ermission denied")
    act("root")
assert sandbox.commands.run("ls /opt; cat /opt/secret", user="root").stdout.split()[-2:] == ["secret", "x"]
# A user that it does not have, and ids that do not exist in it.
for act in [
    lambda user: sandbox.commands.run("id", user=user),
    lambda user: sandbox.files.write("/opt/new/not", "x", user=user),
    lambda user: sandbox.files.read("~/x", user=user),
    lambda user: sandbox.files.make_dir("/opt/new/not", user=user),
]:
    fails(lambda: act("nobody-there"), "invalid username: 'nobody-there'")
    fails(lambda: act("5000"), "does not exist")
assert run(sandbox, "ls /opt/new") == "deep\n"
sandbox.kill()
assert Sandbox.delete_snapshot("users")
refused(template().from_image(IMAGE).set_user("Wrong Name"), "a user has a name of")
refused(template().from_image(IMAGE).set_user("5000"), "does not exist in the sandbox")

# Tags: builds of one name, of which a name alone means the one with the tag `default`.
def tagged(content, name, tags=None):
    return Template.build(template().from_image(IMAGE).run_cmd(f"echo {content} > /opt/built"), name, tags=tags)


def content(name):
    sandbox = Sandbox.create(name)
    built = run(sandbox, "cat /opt/built")
    sandbox.kill()
    return built


first = tagged("one", "tagged:v1")
assert Template.exists("tagged:v1") and Template.exists("tagged")
assert not Template.exists("tagged:v2") and not Template.exists("tagged:default")
fails(lambda: Sandbox.create("tagged"), "was not found")
second = tagged("two", "tagged", tags=["default", "Latest"])
assert [content(name) for name in ("tagged", "tagged:latest", "tagged:v1", first.template_id)] == ["two\n", "two\n", "one\n", "one\n"]
given = Template.assign_tags("tagged:v1", ["stable", "latest"])
assert given.build_id == first.build_id and sorted(given.tags) == ["latest", "stable"], given
assert {tag.tag: tag.build_id for tag in Template.get_tags("tagged")} == {
    "default": second.build_id, "v1": first.build_id, "latest": first.build_id, "stable": first.build_id
}
assert content("tagged:latest") == "one\n"
fails(lambda: Template.assign_tags("tagged:v1", ":wrong"), "is not a tag")
fails(lambda: Template.assign_tags("tagged:v9", "x"), "you have built no template")
fails(lambda: Template.assign_tags("tagged", [f"t{number}" for number in range(40)]), "the limit of 32 tags")
fails(lambda: Template.remove_tags("tagged", "default"), "Cannot delete the 'default' tag")
upon = Template.build(template().from_template("tagged:v1").run_cmd("cat /opt/built > /opt/copy"), "upon")
assert [tag.tag for tag in Template.get_tags("upon")] == ["default"]
# A build goes with its last tag.
Template.remove_tags("tagged", ["v1", "stable", "latest"])
assert not Template.exists("tagged:v1")
fails(lambda: Sandbox.create(first.template_id), "was not found")
assert content("tagged:default") == "two\n"
tagged("three", "tagged:v3")
assert Sandbox.delete_snapshot("tagged") and not Template.exists("tagged") and Sandbox.delete_snapshot("upon")

# On this machine's own root, which sandboxes of `base` have.
based = (
    template()
    .from_template("base")
    .run_cmd("echo own > /opt/own; echo worker:x:50:50::/tmp:/bin/sh >> /etc/passwd")
    .run_cmd("mkdir -m 777 /opt/place")
    .run_cmd("cd /opt/place; { id -u; touch /opt/own 2>/dev/null || echo denied; } > who", user="worker")
)
Template.build(based, "on-base")
sandbox = Sandbox.create("on-base")
assert run(sandbox, "cat /opt/place/who; stat -c %u /opt/place/who") == "50\ndenied\n50\n"
assert run(sandbox, "cat /opt/own; id -un; touch /usr/x 2>/dev/null || echo read-only") == "own\nroot\nread-only\n"
sandbox.kill()
# Interpreters have the template's user, too.
Template.build(template().from_template("on-base").set_user("worker").set_workdir("/opt/place"), "of-worker")
sandbox = Interpreter.create("of-worker")
assert sandbox.run_code("import os; os.getuid(), os.getcwd()").text == "(50, '/opt/place')"
assert sandbox.run_code("id -u", language="bash").logs.stdout == ["50\n"]
sandbox.kill()
assert Sandbox.delete_snapshot("on-base") and Sandbox.delete_snapshot("of-worker")
assert Template.exists("base") and Template.exists("tools") and not Template.exists("refused")
assert Sandbox.delete_snapshot("tools") and not Template.exists("tools")
print("done")
