//! Code as notebooks have it: lines that are commands, and magic commands.

use super::{engine, evaluate, value};
use crate::world::{Run, World};

/// Asserts that code ends well, with this value.
#[track_caller]
fn check(world: &World, code: &str, expected: &str) -> Run {
    let run = evaluate(world, "a", code);
    run.ended("exited", 0, 0);
    assert_eq!(run.get("meta.session.value"), expected, "{code}");
    run
}

/// Asserts that code fails, with this at the end of its error.
#[track_caller]
fn check_error(world: &World, code: &str, expected: &str) {
    let run = evaluate(world, "a", code);
    run.ended("exited", 1, 1);
    assert!(run.stderr().contains(expected), "{code}: {}", run.stderr());
}

#[test]
fn what_compiles_as_python_is_no_command() {
    engine(|world| {
        check(world, "x = (10\n  %3)\nx", "1");
        check(world, "b = 4\nx = (10\n%b)\nx", "2");
        check(world, "x = 10 \\\n%b\nx", "2");
        check(
            world,
            "s = '''\n%matplotlib inline\n!echo no\n%%bash\n'''\ns.count('\\n')",
            "4",
        );
        check(world, "f'''\n!{b}\n'''", "'\\n!4\\n'");
    });
}

#[test]
fn commands_stand_where_statements_begin() {
    engine(|world| {
        let code = "t = '''\n!echo no '''\nif t:\n    !echo don't\nelse:\n    %pwd\ntry:\n    import nothing_here\nexcept ImportError:\n    \
                    !echo one \\\n      two\n!echo (\"\nlen(t)";
        let run = check(world, code, "10");
        assert_eq!(run.stdout(), "one two\n");
        check(
            world,
            "class A:\n    x = !echo it\\'s\nA.x, A.x.s",
            "([\"it's\"], \"it's\")",
        );
        assert_eq!(value(world, "a", "_exit_code"), "0");
        // Errors are those of the code as it is written.
        check_error(
            world,
            "x = (10\n  %b c)",
            "x = (10\n         ^\nSyntaxError: invalid syntax",
        );
        check_error(world, "print('x'\n!ls", "'(' was never closed");
        check_error(world, "!true\ny = 5 +", "line 2\n    y = 5 +");
        check_error(world, "if 1:\n%time 3", "    %time 3\nIndentationError: expected");
        check_error(
            world,
            "x = 1\n%%bash\necho it's",
            "SyntaxError: `%%bash` must be the first line of its code",
        );
        check_error(
            world,
            "%nope 1",
            "line 1, in <module>\n    %nope 1\nUsageError: `%nope` is not available here. Available are %autoreload %cat %cd",
        );
        check_error(world, "%%nope\n1", "UsageError: `%%nope` is not available here");
        check_error(world, "%%time\nx = 1\n1/0", "    %%time\n  File \"<string>");
    });
}

#[test]
fn magic_commands_do_as_in_ipython() {
    engine(|world| {
        check(
            world,
            "%matplotlib inline\n%matplotlib widget\n%config InlineBackend.figure_format = 'svg'\n1",
            "1",
        );
        let timed = check(world, "%%time\nx = 41\nx + 1", "42");
        assert!(timed.stdout().starts_with("CPU times: user ") && timed.stdout().contains("\nWall time: "));
        check(world, "%time y = x + 1\ny", "42");
        check(
            world,
            "%time import asyncio\n%time await asyncio.sleep(0, 5)",
            "5",
        );
        let timed = evaluate(world, "a", "# Comment.\n%%timeit -n 3 -r2 q = x\nq + 1");
        timed.ended("exited", 0, 0);
        assert!(
            timed
                .stdout()
                .ends_with("per loop (mean ± std. dev. of 2 runs, 3 loops each)\n")
        );
        check(world, "r = %timeit -q -o -n1 -r1 x\nr.loops, r.repeat", "(1, 1)");
        check(
            world,
            "!mkdir \"it's one\"\n%cd -q it's one\n%cd -q -\n%cd /\nh = %pwd\n%cd -q -\n%env NEW=a b\nn = !echo $NEW\nh, n",
            "('/', ['a b'])",
        );
        let listed = check(world, "%reset -f\nnumber = 3\n%who\n%whos\n%who_ls", "['number']");
        assert_eq!(
            listed.stdout(),
            "number\nVariable   Type   Value\nnumber     int    3\n"
        );
        let noted = check(world, "%load_ext autoreload\n%autoreload 2\n2", "2");
        assert!(
            noted
                .stderr()
                .contains("`%autoreload` has no effect here: `importlib.reload(module)`")
        );
    });
}

#[test]
fn cells_of_other_languages_and_files() {
    engine(|world| {
        let run = evaluate(world, "a", "%%bash\necho \"don't ('\"\ncat <<END\n%x\nEND");
        run.ended("exited", 0, 0);
        assert_eq!(run.stdout(), "don't ('\n%x\n");
        check_error(
            world,
            "%%sh\nexit 3",
            "CalledProcessError: Command '['sh']' returned non-zero exit status 3",
        );
        evaluate(world, "a", "%%bash --out o --no-raise-error\necho kept; false").ended("exited", 0, 0);
        check(world, "o, _exit_code", "('kept\\n', 1)");
        let file = "%%writefile t.py\nimport sys\nseen = sys.argv[:], __name__";
        assert_eq!(evaluate(world, "a", file).stdout(), "Writing t.py\n");
        check(world, "%run t.py a\nseen", "(['t.py', 'a'], '__main__')");
        let quiet = evaluate(
            world,
            "a",
            "%%capture c\nprint(1)\n!echo 2; echo 3 >&2\ndisplay(4)\n5",
        );
        quiet.ended("exited", 0, 0);
        assert_eq!(
            (
                quiet.stdout(),
                quiet.stderr(),
                quiet.result["meta"].get("results")
            ),
            ("", "", None)
        );
        check(world, "c.stdout, c.stderr", "('1\\n2\\n', '3\\n')");
        let shown = evaluate(world, "a", "c.show()");
        assert_eq!((shown.stdout(), shown.stderr()), ("1\n2\n", "3\n"));
        assert_eq!(shown.result["meta"]["results"].as_array().unwrap().len(), 2);
        let html = evaluate(world, "a", "%%html\n<b>1</b>");
        assert_eq!(html.result["meta"]["results"][0]["data"]["text/html"], "<b>1</b>");
    });
}

/// Modules with the names and the functions that matter of those that code of notebooks imports.
const MODULES: &str = r#"
import os, sys
sys.path.insert(0, os.getcwd())
for path, text in {
    "IPython/__init__.py": "from IPython.core.getipython import get_ipython",
    "IPython/core/__init__.py": "",
    "IPython/core/getipython.py": "def get_ipython(): return None",
    "IPython/core/display_functions.py": "display = update_display = clear_output = publish_display_data = None",
    "IPython/display.py": "from IPython.core.display_functions import *",
    "plotly/__init__.py": "",
    "plotly/graph_objs.py": "class Figure:\n    def __init__(self, data): self.data = data\n"
        "    def __repr__(self): return 'figure'\n    def _repr_html_(self): return '<b>%s</b>' % self.data['n']",
    "plotly/io/__init__.py": "from plotly.io._renderers import show, renderers",
    "plotly/io/_renderers.py": "class renderers:\n    default = 'browser'\n    def _build_mime_bundle(figure, name): return {'text/html': name}\n"
        "def show(): pass\ndef validate_coerce_fig_to_dict(figure, validate): return figure",
    "tqdm/__init__.py": "",
    "tqdm/std.py": "tqdm, trange = 'bars', 'ranges'",
    "tqdm/notebook.py": "from tqdm.std import tqdm as std\nclass tqdm: pass\ntrange = tnrange = tqdm_notebook = tqdm",
    "library.py": "import IPython\ndef bare():\n    try: return get_ipython()\n    except NameError: return 'none'\n"
        "def imported(): return IPython.get_ipython()",
}.items():
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file: file.write(text)
"#;

#[test]
fn code_gets_the_shell_and_libraries_do_not() {
    engine(|world| {
        // Code that does not mention it has no such name.
        let names = "n = 'get_' 'ipython'\nn in vars(__import__('builtins')), n in dir()";
        check(world, names, "(False, False)");
        let system = "get_ipython().system('echo one')\nget_ipython().run_line_magic('matplotlib', 'inline')\n\
                      get_ipython().run_cell_magic('capture', 'c', 'print(2)')\nc.stdout";
        assert_eq!(check(world, system, "'2\\n'").stdout(), "one\n");
        check(
            world,
            "s = get_ipython()\ns.config, hasattr(s, 'kernel'), 'ZMQ' in type(s).__name__",
            "({}, False, False)",
        );
        check(
            world,
            "@get_ipython().register_magic_function\ndef loud(line): return line + '!'\nx = %loud a\nx",
            "'a!'",
        );
        check_error(
            world,
            "get_ipython().events",
            "AttributeError: `get_ipython().events` is not available here",
        );
        evaluate(world, "a", MODULES).ended("exited", 0, 0);
        check(
            world,
            "import library\nlibrary.bare(), library.imported()",
            "('none', None)",
        );
        check(
            world,
            "from IPython import get_ipython as g\ng() is s is get_ipython()",
            "True",
        );
    });
}

#[test]
fn libraries_that_draw_for_notebooks_draw_results_and_text() {
    engine(|world| {
        evaluate(world, "a", MODULES).ended("exited", 0, 0);
        let shown = check(
            world,
            "import plotly.io, plotly.graph_objs\nplotly.io.show({'n': 3})\nplotly.io.show({}, 'png')\nplotly.io.renderers.default",
            "'plotly_mimetype'",
        );
        let results = &shown.result["meta"]["results"];
        assert_eq!(
            (&results[0]["data"]["text/html"], &results[1]["data"]["text/html"]),
            (&"<b>3</b>".into(), &"png".into())
        );
        check(
            world,
            "from tqdm.notebook import tqdm, trange\ntqdm, trange",
            "('bars', 'ranges')",
        );
    });
}

/// Returns the texts of an evaluation's results.
#[track_caller]
fn shown(world: &World, code: &str) -> Vec<String> {
    let run = evaluate(world, "a", code);
    run.ended("exited", 0, 0);
    let results = run.result["meta"]["results"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |result: &serde_json::Value| result["data"]["text/plain"].as_str().unwrap().to_owned();
    results.iter().map(text).collect()
}

#[test]
fn displays_are_updated_and_cleared() {
    engine(|world| {
        assert_eq!(
            shown(
                world,
                "h = display(1, display_id=True)\ndisplay(2)\nh.update('one')"
            ),
            ["'one'", "2"]
        );
        // What an earlier evaluation showed was sent.
        assert_eq!(shown(world, "h.update(5)\nh.update(6)"), ["6"]);
        evaluate(world, "a", MODULES).ended("exited", 0, 0);
        let ours = "from IPython.display import *\nk = display(1, display_id='k')\nupdate_display(2, display_id='k')\nk.update(3)";
        assert_eq!(shown(world, ours), ["3"]);
        assert_eq!(
            shown(
                world,
                "display(1)\nclear_output(wait=True)\ndisplay(2)\nclear_output(wait=True)"
            ),
            ["2"]
        );
        assert_eq!(shown(world, "display(1)\nclear_output()"), [""; 0]);
        assert_eq!(shown(world, "display(1); display(2, clear=True)"), ["2"]);
        // Replaced results do not count.
        let large = "class L:\n    def __repr__(self): return 'l'\n    def _repr_html_(self): return 'x' * (3 << 20)\n\
                     h = display(L(), display_id=True)\nfor _ in range(40): h.update(L())\ndisplay(L())";
        let run = evaluate(world, "a", large);
        let results = run.result["meta"]["results"].as_array().unwrap();
        assert!(results.len() == 2 && results.iter().all(|result| result.get("omitted").is_none()));
        assert_eq!(run.result["meta"].get("warnings"), None);
    });
}
