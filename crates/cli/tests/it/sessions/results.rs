//! Results beside the text of a value: MIME bundles, figures, data frames, and their bounds.

use std::path::Path;

use serde_json::{Value, json};

use super::{engine, evaluate, session, sessions, value};
use crate::support::eventually_none;
use crate::world::{Run, World, venv};

fn results(run: &Run) -> &[Value] {
    run.ended("exited", 0, 0);
    run.result["meta"]["results"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

#[test]
fn a_plain_value_has_no_results() {
    engine(|world| {
        for code in ["1 + 1", "'text'", "[1, {2: 3}]", "object()", "print('x')", "int"] {
            assert_eq!(
                evaluate(world, "a", code).result["meta"].get("results"),
                None,
                "{code}"
            );
        }
    });
}

const OFFERING: &str = "import base64\nPNG = b'\\x89PNG\\r\\n\\x1a\\n' + b'x'\nclass Offering:\n    def __repr__(self): return 'text'\n    \
    def _repr_html_(self): return '<b>html</b>'\n    def _repr_markdown_(self): return '*m*', {'metadata': 1}\n    \
    def _repr_svg_(self): return '<svg/>'\n    def _repr_png_(self): return PNG\n    \
    def _repr_jpeg_(self): return base64.b64encode(b'\\xff\\xd8\\xffx').decode()\n    def _repr_pdf_(self): return b'%PDF-1'\n    \
    def _repr_latex_(self): return '$l$'\n    def _repr_json_(self): return {'b': 1, 'a': [None]}\n    \
    def _repr_javascript_(self): return 'alert(1)'\n    \
    def _repr_mimebundle_(self, include=None, exclude=None): return {'application/vnd.some.v1+json': {'c': 2}, 'text/unknown': 'x'}\n";

#[test]
fn a_value_comes_in_every_format_that_it_offers() {
    engine(|world| {
        let run = evaluate(world, "a", &format!("{OFFERING}Offering()"));
        let expected = json!([{"main": true, "data": {
            "text/plain": "text", "text/html": "<b>html</b>", "text/markdown": "*m*", "image/svg+xml": "<svg/>",
            "image/png": "iVBORw0KGgp4", "image/jpeg": "/9j/eA==", "application/pdf": "JVBERi0x", "text/latex": "$l$",
            "application/json": {"b": 1, "a": [null]}, "application/javascript": "alert(1)",
            "application/vnd.some.v1+json": {"c": 2},
        }}]);
        assert_eq!(Value::from(results(&run)), expected);
        assert_eq!(run.get("meta.session.value"), "text");
        let shown = evaluate(
            world,
            "a",
            "display(Offering(), 1)\ndisplay({'text/plain': 'raw'}, raw=True)\n2",
        );
        let found = results(&shown);
        assert_eq!(found.len(), 3, "{shown:?}");
        assert!(found.iter().all(|result| result["main"] == false));
        assert_eq!(
            (&found[1]["data"], &found[2]["data"]),
            (&json!({"text/plain": "1"}), &json!({"text/plain": "raw"}))
        );
        assert_eq!(shown.get("meta.session.value"), "2");
        // Nothing of it comes again.
        assert_eq!(results(&evaluate(world, "a", "3")), [Value::Null; 0]);
        let text = world.run(["--session", "a", "-c", "display('shown')\nOffering()"]);
        assert_eq!(text.stdout, "'shown'\ntext\n");
        assert!(
            text.stderr.contains("a result is image/png (9 bytes)"),
            "{text:?}"
        );
        // Neither a record nor a model gets binary data.
        let failed = evaluate(world, "a", "display(Offering())\n1/0");
        let path = failed.get("meta.artifact").as_str().unwrap();
        let artifact = std::fs::read_to_string(Path::new(path)).unwrap();
        assert!(
            artifact.contains("image/png") && !artifact.contains("iVBORw0KGgp4"),
            "{artifact}"
        );
    });
}

#[test]
fn a_format_that_fails_is_the_programs_error_and_one_that_is_wrong_is_left_out() {
    engine(|world| {
        let broken = evaluate(world, "a", "class A:\n    def _repr_html_(self): return 1/0\nA()");
        broken.ended("exited", 1, 1);
        assert!(broken.stderr().contains("ZeroDivisionError"), "{broken:?}");
        let wrong = evaluate(
            world,
            "a",
            "class B:\n    def __repr__(self): return 'b'\n    def _repr_png_(self): return b'GIF'\n    def _repr_json_(self): return float('nan')\nB()",
        );
        let found = results(&wrong);
        assert_eq!(found[0]["data"], json!({"text/plain": "b"}));
        assert_eq!(found[0]["omitted"].as_object().unwrap().len(), 2);
        assert_eq!(
            wrong.get("meta.warnings").as_array().unwrap().len(),
            2,
            "{wrong:?}"
        );
    });
}

#[test]
fn results_are_bounded_in_size_and_number_and_that_is_told() {
    engine(|world| {
        let many = evaluate(world, "a", "for n in range(40): display(n)");
        assert_eq!(results(&many).len(), 32);
        assert!(
            many.get("meta.warnings")
                .to_string()
                .contains("8 more results were left out"),
            "{many:?}"
        );
        let large = "class L:\n    def __init__(self, n): self.n = n\n    def __repr__(self): return 'large'\n    def _repr_html_(self): return 'x' * self.n\n";
        let run = evaluate(
            world,
            "a",
            &format!("{large}for n in (5, 3, 3, 3): display(L(n << 20))"),
        );
        let whole: Vec<_> = results(&run)
            .iter()
            .map(|one| one["data"].get("text/html").is_some())
            .collect();
        assert_eq!(whole, [false, true, true, false]);
        let found = results(&run);
        assert_eq!(
            (
                &found[0]["omitted"]["text/html"],
                &found[3]["omitted"]["text/html"]
            ),
            (&json!(5 << 20), &json!(3 << 20))
        );
        assert_eq!(
            run.get("meta.warnings").as_array().unwrap().len(),
            2,
            "{:?}",
            run.get("meta.warnings")
        );
        let text = evaluate(world, "a", "display('é' * 100_000)");
        assert!(results(&text)[0]["data"]["text/plain"].as_str().unwrap().len() <= 64 * 1024);
        assert!(text.get("meta.warnings").to_string().contains("was shortened"));
    });
}

/// Forged results harm their own session alone.
#[test]
fn malformed_results_end_the_session() {
    engine(|world| {
        evaluate(world, "witness", "x = 1");
        let head =
            "import os, struct, time\nhead = lambda rich: struct.pack('<IBQII', 1, 0, 2**64 - 1, 0, rich)\n";
        for forged in [
            "os.write(3, head(2**32 - 1))",
            "os.write(3, head((8 << 20) + 65537))",
            "os.write(3, head(7) + bytes(4) + b'\\1\\1\\5')",
            "os.write(3, head(6 * 40 + 4) + bytes(6 * 40 + 4))",
        ] {
            let run = evaluate(world, "a", &format!("{head}{forged}\ntime.sleep(1000)"));
            super::lost(&run, "unknown", 125, 125);
            assert_eq!(run.result["meta"].get("results"), None);
            eventually_none("the forger's session", || {
                sessions(world)
                    .into_iter()
                    .filter(|one| one["id"] == "a")
                    .collect()
            });
        }
        assert_eq!(value(world, "witness", "x"), "1");
    });
}

/// A child of the code shows nothing in its parent's place.
#[test]
fn children_and_forks_keep_results_apart() {
    engine(|world| {
        let code = "import os\nchild = os.fork()\nif child == 0:\n    display('child')\n    os._exit(0)\nos.waitpid(child, 0)\ndisplay('parent')";
        let run = evaluate(world, "a", code);
        assert_eq!(results(&run).len(), 1);
        session(world, &["fork", "a", "b"]).ok();
        assert_eq!(
            results(&evaluate(world, "b", "display('fork')"))[0]["data"]["text/plain"],
            "'fork'"
        );
    });
}

/// Returns a world whose server has the Python with numpy, pandas and matplotlib.
fn equipped() -> Option<World> {
    let python = venv()?;
    let world = World::before_engine();
    let config = format!("[sandbox]\npython = '{python}'\nmemory = '1GiB'\n");
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine();
    Some(world)
}

fn patiently(world: &World, code: &str) -> Run {
    world.json(["--session", "a", "--timeout", "120s", "-c", code])
}

#[test]
fn figures_need_no_set_up() {
    let Some(world) = equipped() else { return };
    let run = |code: &str| patiently(&world, code);
    let shown = run(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [1, 4, 9], label='squares')\nplt.xlabel('t (s)')\nplt.show()\nplt.bar(['a', 'b'], [3, 4])\nNone",
    );
    let found = results(&shown);
    assert_eq!(found.len(), 2, "{shown:?}");
    for result in found {
        assert!(
            result["data"]["image/png"]
                .as_str()
                .unwrap()
                .starts_with("iVBORw0KGgo")
        );
        assert_eq!(result["main"], false);
    }
    let chart = &found[0]["data"]["application/vnd.ringfence.chart+json"];
    assert_eq!((&chart["type"], &chart["x_unit"]), (&json!("line"), &json!("s")));
    assert_eq!(
        chart["elements"],
        json!([{"label": "squares", "points": [[1.0, 1.0], [2.0, 4.0], [3.0, 9.0]]}])
    );
    let chart = &found[1]["data"]["application/vnd.ringfence.chart+json"];
    let bar = |label, value| json!({"label": label, "group": "Group 0", "value": value});
    assert_eq!(
        (&chart["type"], &chart["elements"]),
        (&json!("bar"), &json!([bar("a", 3.0), bar("b", 4.0)]))
    );
    assert_eq!(shown.get("stderr"), "");
    // Shown figures are closed.
    assert_eq!(run("plt.get_fignums()").get("meta.session.value"), "[]");
    let kinds = [
        ("plt.scatter([1], [2])", "scatter"),
        ("plt.pie([1, 3])", "pie"),
        (
            "plt.boxplot([[1, 2, 3, 9]], patch_artist=True)",
            "box_and_whisker",
        ),
        ("_, axes = plt.subplots(1, 2)\naxes[0].plot([1, 2])", "superchart"),
        ("plt.imshow([[1, 2]])", "unknown"),
    ];
    for (code, kind) in kinds {
        let drawn = run(&format!("{code}\nNone"));
        assert_eq!(
            results(&drawn)[0]["data"]["application/vnd.ringfence.chart+json"]["type"],
            kind,
            "{drawn:?}"
        );
    }
    let figure = run("fig, ax = plt.subplots()\nax.plot([1, 2])\nfig");
    assert_eq!(
        (results(&figure).len(), &results(&figure)[0]["main"]),
        (1, &json!(true))
    );
    // An error after a figure was drawn leaves the figure.
    let failed = run("plt.plot([1, 2])\n1/0");
    failed.ended("exited", 1, 1);
    assert_eq!(failed.get("meta.results").as_array().unwrap().len(), 1);
    world.close();
}

#[test]
fn data_frames_and_images_need_no_set_up() {
    let Some(world) = equipped() else { return };
    let run = |code: &str| patiently(&world, code);
    let frame = run(
        "import pandas as pd\npd.DataFrame({'b': [1.5, None], 'a': ['x', 'y'], 'd': pd.to_datetime(['2020-01-01'] * 2)})",
    );
    let data = &results(&frame)[0]["data"];
    assert!(data["text/html"].as_str().unwrap().contains("<table"));
    let records = json!({"b": [1.5, null], "a": ["x", "y"], "d": ["2020-01-01T00:00:00.000", "2020-01-01T00:00:00.000"]});
    assert_eq!(data["application/vnd.ringfence.data+json"], records);
    let long = run("pd.DataFrame({'n': range(5000)})");
    assert_eq!(
        results(&long)[0]["data"]["application/vnd.ringfence.data+json"]["n"]
            .as_array()
            .unwrap()
            .len(),
        1000
    );
    assert!(
        long.get("meta.warnings")
            .to_string()
            .contains("data+json` of result 1 was shortened"),
        "{long:?}"
    );
    let image = run("from PIL import Image\nImage.new('RGB', (2, 2))");
    assert!(results(&image)[0]["data"]["image/png"].is_string(), "{image:?}");
    // Shown and saved, and not what is saved into a buffer or by a library.
    let code = "import io\nimage = Image.new('RGB', (2, 2))\nimage.show()\nimage.save('/tmp/a.png')\n\
         image.save(io.BytesIO(), 'PNG')\nimport matplotlib.image\nmatplotlib.image.imsave('/tmp/b.png', [[1.0]])\n'last'";
    let shown = run(code);
    let formats: Vec<_> = results(&shown)
        .iter()
        .map(|result| result["data"]["image/png"].is_string())
        .collect();
    assert_eq!(formats, [true, true], "{shown:?}");
    world.close();
}
