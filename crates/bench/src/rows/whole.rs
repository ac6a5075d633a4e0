//! Whole processes, as a shell would start them.

use ringfence_policy::Language;

use super::super::context::BenchContext;
use super::super::engine::WORLD;
use super::super::figure::{Figure, Target, Unit};
use super::super::process::in_turns;

/// A world without a server.
const ALONE: &str = "alone";
const PYTHON: &[&str] = &["-I", "-S", "-c", "print(1)"];

pub(super) fn start(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let [ours, floor] = in_turns([
        place.ringfence(ALONE, &["--version"]),
        place.plain("/bin/true", &[]),
    ])?;
    let figure = Figure::new(
        "start",
        "--version; peer /bin/true",
        ours.median,
        Unit::Milliseconds,
    );
    Ok(vec![figure.with(ours).beside(floor).against(Target::AtMost(3.0))])
}

pub(super) fn python(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let python = place.interpreter(Language::Python)?;
    let [sample] = in_turns([place.plain(&python, PYTHON)])?;
    let what = format!("{} -I -S", python.display());
    Ok(vec![
        Figure::new("python", what, sample.median, Unit::Milliseconds).beside(sample),
    ])
}

pub(super) fn cold(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "run-cold";
    let python = place.interpreter(Language::Python)?;
    let ours = || place.ringfence(ALONE, &["run", "--no-engine", "-c", "print(1)"]);
    let [cold, peer] = in_turns([ours(), place.plain(&python, PYTHON)])?;
    let mut figures = vec![Figure::ratio(NAME, "against python3", cold, peer).against(Target::AtMost(1.5))];
    let Some(bwrap) = place.find("bwrap")? else {
        return Ok(figures);
    };
    let mut fenced = place.plain(
        bwrap,
        &[
            "--unshare-all",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
        ],
    );
    fenced.arg(&python).args(PYTHON);
    figures.push(match in_turns([ours(), fenced]) {
        Ok([cold, peer]) => {
            Figure::ratio(NAME, "against bwrap --unshare-all python3", cold, peer).against(Target::Below(1.0))
        }
        Err(error) => Figure::unmeasured(NAME, format!("against bwrap: {error:#}")),
    });
    Ok(figures)
}

pub(super) fn warm(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let python = place.interpreter(Language::Python)?;
    place.engine()?;
    let [warm, peer] = in_turns([
        place.ringfence(WORLD, &["run", "-c", "print(1)"]),
        place.plain(&python, PYTHON),
    ])?;
    let figure = Figure::ratio("run-engine", "against python3", warm, peer);
    Ok(vec![figure.against(Target::AtMost(0.4))])
}

pub(super) fn tool(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let python = place.interpreter(Language::Python)?;
    place.engine()?;
    let [tool, peer] = in_turns([
        place.ringfence(WORLD, &["tool", "run_python_code", r#"{"code": "print(1)"}"#]),
        place.plain(&python, PYTHON),
    ])?;
    let figure = Figure::ratio("tool-engine", "against python3", tool, peer);
    Ok(vec![figure.against(Target::AtMost(0.5))])
}

pub(super) fn bash(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let bash = place.interpreter(Language::Bash)?;
    let plain = place.plain(&bash, &["--noprofile", "--norc", "-c", "echo 1"]);
    fresh(
        place,
        "fresh-bash",
        plain,
        "bash",
        &["-l", "bash", "-c", "echo 1"],
    )
}

pub(super) fn node(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let node = place.interpreter(Language::Javascript)?;
    let name = node
        .file_name()
        .map_or("node".to_owned(), |name| name.to_string_lossy().into_owned());
    let arguments: &[&str] = if name.starts_with("deno") {
        &["eval", "console.log(1)"]
    } else {
        &["-e", "console.log(1)"]
    };
    let plain = place.plain(&node, arguments);
    let program = &["-l", "javascript", "-c", "console.log(1)"];
    fresh(place, "fresh-node", plain, &name, program)
}

/// Measures a language without a pool: with and without a server, both compared with the plain interpreter.
fn fresh(
    place: &mut BenchContext,
    name: &'static str,
    plain: std::process::Command,
    peer_name: &str,
    program: &[&str],
) -> anyhow::Result<Vec<Figure>> {
    place.engine()?;
    let alone: Vec<&str> = ["run", "--no-engine"].iter().chain(program).copied().collect();
    let served: Vec<&str> = ["run"].iter().chain(program).copied().collect();
    let [cold, warm, peer] = in_turns([
        place.ringfence(ALONE, &alone),
        place.ringfence(WORLD, &served),
        plain,
    ])?;
    Ok(vec![
        Figure::ratio(name, format!("without a server, against {peer_name}"), cold, peer),
        Figure::ratio(name, format!("with a server, against {peer_name}"), warm, peer),
    ])
}
