//! A program that runs the Python of its standard input in a fence, and prints the output as it comes.
//!
//! `echo 'print(6 * 7)' | cargo run -p ringfence --example embed`

use std::error::Error;
use std::io::{self, Read, Write};

use ringfence::{Request, Runner, Stream, Timeout};

fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    let mut code = String::new();
    io::stdin().read_to_string(&mut code)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(code))
}

async fn run(code: String) -> Result<(), Box<dyn Error>> {
    let runner = Runner::builder().build()?;
    let request = Request::python(code).timeout(Timeout::seconds(5));
    let mut run = runner.start(request).await?;
    while let Some(chunk) = run.output().await {
        match chunk.stream {
            Stream::Stdout => io::stdout().write_all(&chunk.bytes)?,
            Stream::Stderr => io::stderr().write_all(&chunk.bytes)?,
        }
    }
    let result = run.result().await?;
    writeln!(
        io::stderr(),
        "{:?} in {:.3} s",
        result.meta.outcome,
        result.duration
    )?;
    runner.close().await;
    Ok(())
}
