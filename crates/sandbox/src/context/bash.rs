//! Contexts in bash. The bridge carries a number and code, each followed by a zero byte; the reply is the
//! number and the status.

use ringfence_exec::local::session_messages::NoAnswer;
use ringfence_policy::EnvName;
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::{Answer, Code, read_until};

/// Longest answer: a number, a space, and a status of three digits.
const MAX_STATUS: usize = 16;

/// Reads code and sources it in this very shell, which keeps variables, functions, options and the working
/// directory. The programs that it starts have no bridge. SIGINT ends the running program, and returns from
/// the code or its running function. A loop of builtins alone ignores it.
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

/// Sends code to the interpreter, and waits for the answer.
pub(super) async fn evaluate(
    bridge: &mut DuplexStream,
    number: u32,
    code: &Code,
) -> Result<Answer, NoAnswer> {
    let code = match with_variables(code) {
        Ok(code) => code,
        Err(warning) => {
            return Ok(Answer {
                status: 2,
                warnings: vec![warning],
                ..Answer::default()
            });
        }
    };
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

/// Returns code that runs the given code with its variables. Before a builtin, which `.` is, they hold while it runs
/// (bash(1), ENVIRONMENT).
fn with_variables(code: &Code) -> Result<String, String> {
    let mut texts = code.variables.iter().map(|(_, value)| value).chain([&code.code]);
    if texts.any(|text| text.contains('\0')) {
        return Err("bash code cannot contain a zero byte: it was not run".to_owned());
    }
    if code.variables.is_empty() {
        return Ok(code.code.clone());
    }
    let mut line = String::new();
    for (name, value) in &code.variables {
        if !is_variable(name) {
            let name: String = name.as_str().chars().take(80).collect();
            return Err(format!(
                "`{name}` is not a valid name of a variable in bash: the code was not run"
            ));
        }
        line += &format!("{}={} ", name.as_str(), quoted(value));
    }
    Ok(format!("{line}. /dev/fd/5 5<<<{}", quoted(&code.code)))
}

/// Returns `true` for a name of letters, digits and underscores whose first character is not a digit.
fn is_variable(name: &EnvName) -> bool {
    let is_in_name = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    let bytes = name.as_str().as_bytes();
    bytes.iter().all(|byte| is_in_name(*byte)) && !bytes.first().is_some_and(u8::is_ascii_digit)
}

/// Quotes a text for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use ringfence_policy::Timeout;

    use super::*;

    fn code(code: &str, variables: &[(&str, &str)]) -> Code {
        let variables = variables.iter();
        Code {
            code: code.to_owned(),
            user: None,
            timeout: Timeout::seconds(1),
            variables: variables
                .map(|(name, value)| (name.parse().unwrap(), (*value).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn variables_stand_before_the_code() {
        assert_eq!(with_variables(&code("echo 'a'", &[])).unwrap(), "echo 'a'");
        assert_eq!(
            with_variables(&code("echo 'a'", &[("_A1", "it's"), ("B", "")])).unwrap(),
            r"_A1='it'\''s' B='' . /dev/fd/5 5<<<'echo '\''a'\'''"
        );
        for name in ["1A", "A.B", "A;id", "A[$(id)]", "é"] {
            assert!(with_variables(&code("", &[(name, "")])).is_err(), "{name}");
        }
        assert!(with_variables(&code("\0", &[])).is_err());
    }
}
