//! Contexts in bash: a number and code come on the bridge, each with a zero byte behind it; the number and the status go back.

use ringfence_exec::local::session_messages::NoAnswer;
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::{Answer, read_until};

/// Longest answer: a number, a space, and a status of three digits.
const MAX_STATUS: usize = 16;

/// Reads code and sources it in this very shell, which keeps variables, functions, options and the working directory. The
/// programs that it starts have no bridge. SIGINT ends what it runs, and
/// returns from the code, or from the function that runs. A loop of nothing but builtins does not heed it.
const SCRIPT: &str = r#"
trap 'return 130' INT
while IFS= read -r -d '' -u 3 ringfence_number && IFS= read -r -d '' -u 3 ringfence_code; do
    . /dev/fd/4 4<<<"$ringfence_code" 3<&- </dev/null
    printf '%s %d\0' "$ringfence_number" $? >&3
done
"#;

/// Returns the program of an interpreter, with its arguments.
pub(super) fn command() -> (String, Vec<String>) {
    let arguments = ["--noprofile", "--norc", "-c", SCRIPT, "bash"].map(str::to_owned);
    ("bash".to_owned(), arguments.into())
}

/// Has code evaluated.
pub(super) async fn evaluate(bridge: &mut DuplexStream, number: u32, code: &str) -> Result<Answer, NoAnswer> {
    if code.contains('\0') {
        return Ok(Answer {
            status: 2,
            warnings: vec!["bash code cannot contain a zero byte: it was not run".to_owned()],
            ..Answer::default()
        });
    }
    let message = format!("{number}\0{code}\0").into_bytes();
    bridge.write_all(&message).await.map_err(NoAnswer::from)?;
    let status = read_until(bridge, 0, MAX_STATUS).await?;
    // An answer that code has written before it was asked for has another number.
    let answer = std::str::from_utf8(&status).ok();
    let status = answer
        .and_then(|text| text.strip_prefix(&format!("{number} ")))
        .and_then(|text| text.parse().ok());
    Ok(Answer {
        status: status.ok_or(NoAnswer::Nonsense)?,
        ..Answer::default()
    })
}
