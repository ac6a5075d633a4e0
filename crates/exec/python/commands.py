"""Code of a session that is no Python, as notebooks have it: `!command`, `name = !command`, `%magic` and `%%magic`.

Compiled when a session's code first fails to compile. Whatever is Python stays as it is.
"""
import re

SHELL = "__ringfence_shell__"
MAX = 100

# A command, at the beginning of a line: its indentation, the names that get its value, its mark, and the rest with joined lines.
COMMAND = re.compile(r"([ \t]*)(?:([^\W\d][\w.,\[\] \t]*?)[ \t]*=[ \t]*)?(!!?(?!=)|%(?=%?[^\W\d]))((?:\\\n|[^\n])*)")

# Code that is one command as a whole, behind empty lines and comments.
CELL = re.compile(r"((?:[ \t]*(?:#[^\n]*)?\n)*)[ \t]*%%([^\W\d]\w*)([^\n]*)\n?")

# What decides where a statement may begin: strings, comments, joined lines, brackets, ends of lines.
TOKEN = re.compile(
    r'"{3}(?:\\.|[^\\])*?"{3}|' r"'{3}(?:\\.|[^\\])*?'{3}|" r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|#[^\n]*|\\\n|[\[({})\]\n]",
    re.DOTALL,
)


def with_command(code, error):
    """The code with a call in place of the command for which it does not compile; None if the error is about something else."""
    cell = CELL.match(code)
    if cell is not None:
        before, name, line = cell.groups()
        lines = before.count("\n")
        return "\n" * lines + f"{SHELL}.run_cell_magic({name!r}, {line.strip()!r}, {code[cell.end() :]!r}, {lines + 1})"
    for command in commands(code):
        first = code.count("\n", 0, command.start()) + 1
        joined = command.group().count("\n")
        if command[3] == "%" and command[4].startswith("%") and first <= (error.lineno or 0):
            error.msg = f"`%{command[4].split()[0]}` must be the first line of its code"
            error.lineno, error.offset, error.text = first, None, command.group()
            return None
        if first <= (error.lineno or 0) <= first + joined:
            return code[: command.start()] + call(command) + "\n" * joined + code[command.end() :]
    return None


def told_as_written(error, code):
    """Shows in an error the line as it is in the code, and not the call in its place."""
    lines = code.split("\n")
    if error.text and SHELL in error.text and 0 < (error.lineno or 0) <= len(lines):
        error.offset, error.text = None, lines[error.lineno - 1]


def commands(code):
    """The commands where a statement may begin: not within brackets or strings, nor behind a line that goes on."""
    position, depth, begins = 0, 0, True
    while True:
        command = COMMAND.match(code, position) if begins else None
        if command is not None:
            yield command
            position = command.end()
        token = TOKEN.search(code, position)
        if token is None:
            return
        position, found = token.end(), token.group()
        if found in "[({":
            depth += 1
        elif found in "])}":
            depth = max(0, depth - 1)
        begins = found == "\n" and depth == 0


def call(command):
    indentation, names, mark, text = command.groups()
    text = text.replace("\\\n", " ").strip()
    if mark == "%":
        name, _, line = text.partition(" ")
        called = f"run_line_magic({name!r}, {line.strip()!r})"
    else:
        called = f"{'getoutput' if names or mark == '!!' else 'system'}({text!r})"
    return f"{indentation}{names + ' = ' if names else ''}{SHELL}.{called}"
