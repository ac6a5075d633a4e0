//! Packages that the server has imported in advance, compared with a fresh interpreter.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ringfence_exec::local::Fence;
use ringfence_exec::runner::RunSpec;
use ringfence_policy::{Bytes, Language, Limits, Mount, Outcome, PACKAGES, Request, Target as RunTarget};
use ringfence_server::client::Client;
use ringfence_server::wire::Run;

use super::super::context::BenchContext;
use super::super::engine::{python, send};
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::{milliseconds, time};

const NAME: &str = "packages";
const ROUNDS: usize = 50;
const PEER_ROUNDS: usize = 5;

/// Time for the server to import the packages.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Prints the directory of packages that an interpreter has.
const FIND: &str = "import matplotlib, os, pandas; print(os.path.dirname(os.path.dirname(pandas.__file__)))";

/// Prints the milliseconds that the import takes.
const IMPORT: &str =
    "import time; since = time.perf_counter(); import pandas; print(1000 * (time.perf_counter() - since))";

const CHART: &str = "import io, pandas, matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\n\
                     pandas.DataFrame({'x': [1, 2, 3]}).plot(); plt.savefig(io.BytesIO()); print(1)";

pub(super) fn preloaded(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let interpreter = place.interpreter(Language::Python)?;
    let found = place
        .plain(&interpreter, &["-c", FIND])
        .stdout(Stdio::piped())
        .output()?;
    if !found.status.success() {
        return Ok(vec![Figure::unmeasured(
            NAME,
            format!("{} has no pandas and matplotlib", interpreter.display()),
        )]);
    }
    let packages = PathBuf::from(String::from_utf8(found.stdout)?.trim_end());
    let (import, chart) = (request(&packages, IMPORT)?, request(&packages, CHART)?);
    place.engine()?.settle();
    let mut client = place.connect()?;
    let (imports, charts) = place.runtime.block_on(async {
        wait_for_preloading(&mut client, &import).await?;
        let (mut imports, mut charts) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            imports.push(print(&mut client, &import).await?.0);
            charts.push(print(&mut client, &chart).await?.1);
        }
        anyhow::Ok((Sample::of(imports), Sample::of(charts)))
    })?;
    let mut fresh = place.plain(&interpreter, &["-c", CHART]);
    let fresh: anyhow::Result<Vec<f64>> = (0..PEER_ROUNDS).map(|_| time(&mut fresh)).collect();
    let mut plain = place.plain(&interpreter, &["-c", "import pandas"]);
    let plain: anyhow::Result<Vec<f64>> = (0..PEER_ROUNDS).map(|_| time(&mut plain)).collect();
    let figure = |what: &str, ours: Sample, peer: Vec<f64>, most: f64| {
        Figure::new(NAME, what, ours.median, Unit::Milliseconds)
            .with(ours)
            .beside(Sample::of(peer))
            .against(Target::AtMost(most))
            .noting("peer is a fresh interpreter")
    };
    Ok(vec![
        figure("import pandas, within the program, p50", imports, plain?, 5.0),
        figure("a chart, request to result, p50", charts, fresh?, 60.0),
    ])
}

fn request(packages: &Path, code: &str) -> anyhow::Result<Run> {
    let request = Request {
        mounts: vec![Mount::packages(packages.to_owned(), PACKAGES)],
        limits: Limits {
            memory: Bytes::mib(512),
            ..Limits::DEFAULT
        },
        ..python(code)
    };
    let spec = RunSpec::new(request, RunTarget::Local, Fence::Default);
    Run::of(&spec, None).context("making a request")
}

/// Runs a program until it is a copy of an interpreter that had imported its packages.
async fn wait_for_preloading(client: &mut Client, run: &Run) -> anyhow::Result<()> {
    let since = Instant::now();
    loop {
        let result = send(client, run).await?;
        if result.meta.preloaded {
            return Ok(());
        }
        if since.elapsed() > TIMEOUT {
            bail!(
                "the packages are not imported beforehand: {:?}",
                result.meta.warnings
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs a program. Returns the number that it prints, and the milliseconds from request to result.
async fn print(client: &mut Client, run: &Run) -> anyhow::Result<(f64, f64)> {
    let since = Instant::now();
    let result = send(client, run).await?;
    let elapsed = milliseconds(since.elapsed());
    ensure!(
        result.meta.outcome == Outcome::Exited && result.meta.preloaded,
        "a program with packages ended so: {}",
        result.stderr.trim()
    );
    Ok((result.stdout.trim().parse()?, elapsed))
}
