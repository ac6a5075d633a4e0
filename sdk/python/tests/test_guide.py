"""The programs of the guide and of `examples/sdk`, as a user without a server runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import List

import pytest

from conftest import ASK, BINARY, LONG, Server, World
from ringfence import Client

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("page", "least"), [("python", 14), ("training", 1)])
def test_the_guide_prints_what_it_says(tmp_path: Path, page: str, least: int) -> None:
    guide = (ROOT / f"docs/guide/{page}.md").read_text()
    blocks = [block.split("```")[0] for block in guide.split("```python\n")[1:]]
    assert len(blocks) >= least
    program = "\n".join(blocks)
    expected = [line.strip()[3:] for line in program.splitlines() if line.strip().startswith("#> ")]
    world = World(tmp_path)
    world.env["PATH"] = f"{Path(BINARY).parent}:{world.env['PATH']}"
    user = world.python(program)
    out, _ = user.communicate()
    assert user.returncode == 0
    assert [line for line in out.splitlines() if line] == expected


@pytest.mark.skipif(not os.environ.get("RINGFENCE_TEST_VENV"), reason="no target/test-venv with matplotlib")
def test_the_chart_of_the_guide_is_drawn(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guide/python.md").read_text()
    program = guide.split("```py\n")[1].split("```")[0]
    # There is no index here: `sandbox.python` has the package. `test_packages` has one, of another package.
    assert 'packages=["matplotlib"]' in program
    user = World(tmp_path).python(program.replace('packages=["matplotlib"]', 'memory="1GiB"'))
    out, _ = user.communicate()
    assert (user.returncode, out) == (0, "line [[0.0, 1.0], [1.0, 4.0], [2.0, 9.0]]\n")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_the_program_of_the_guide_answers_questions(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guide/python.md").read_text()
    blocks = [block.split("```")[0] for block in guide.split("```py\n")[1:]]
    (program,) = (block for block in blocks if "approvals" in block)
    server = Server(tmp_path, ASK)
    answering = server.python(program, stdin=subprocess.PIPE)
    shown: List[str] = []
    with Client(socket=server.socket) as client:
        person = threading.Thread(target=_answer, args=(answering, client, shown))
        person.start()
        # Nobody is asked before it follows; the first answer is "y", and the second comes from elsewhere.
        lookalike = LONG + " # \u0430"
        while client.run(lookalike).outcome == "timed_out":
            assert answering.poll() is None, "the program of the guide ended by itself"
        assert client.run(lookalike).outcome == "exited"
        questions = client.approvals.list(past=True)
        assert [each.state for each in questions] == ["approved", "approved", "rejected"]
    answering.kill()
    person.join()
    answering.communicate()
    text = "".join(shown)
    assert text.count("it was answered elsewhere") == 1, text
    assert text.count("! ") == 3 and questions[0].foreign in text, text
    assert all(f"| {line}\n" in text for line in questions[0].text.splitlines()), text
    server.stop()


def _answer(program: "subprocess.Popen[str]", client: Client, shown: List[str]) -> None:
    """Answers three questions: with "y", late, with the code."""
    assert program.stdin is not None and program.stdout is not None
    prompts = 0
    while piece := program.stdout.read(1):
        shown.append(piece)
        found = re.search(r"^(\w{6}) to approve: $", "".join(shown[-20:]), re.MULTILINE)
        if not found:
            continue
        prompts += 1
        if prompts == 2:
            (question,) = client.approvals.list()
            client.approvals.answer(question, approved=True)
        program.stdin.write("y\n" if prompts == 1 else f"{found[1]}\n")
        program.stdin.flush()
        shown.append("\n")


def test_the_example_reports(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "data.csv").write_text("a\n1\n2\n")
    for arguments, expected in [([], "x sum 4.0\ny sum 6.0\nrows 2\n"), (["data.csv"], "a sum 3.0\nrows 2\n")]:
        command = [sys.executable, str(ROOT / "examples/sdk/report.py"), *arguments]
        done = subprocess.run(command, env=world.env, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, expected), done.stderr
