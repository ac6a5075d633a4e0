//! Values of arguments, checked before a command acts.

use std::str::FromStr;

use ringfence_policy::EnvName;

/// Parses a variable of a program's environment.
pub(crate) fn variable(text: &str) -> Result<(EnvName, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        format!(
            "expected `NAME=value`, found no `=`; to pass on your own variable, write `{text}=\"${text}\"`"
        )
    })?;
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(format!(
            "expected a name that does not begin with a digit, which no shell can use, got `{name}`"
        ));
    }
    let name = name
        .parse()
        .map_err(|error: ringfence_policy::ParseEnvNameError| error.to_string())?;
    Ok((name, value.to_owned()))
}

/// Parses a label.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Checks that a text is a `T`, and returns it as it is.
pub(crate) fn checked<T: FromStr<Err: ToString>>(text: &str) -> Result<String, String> {
    let parsed = text.parse::<T>();
    parsed.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Parses a whole number from `MIN` to `MAX`.
pub(crate) fn number<const MIN: u32, const MAX: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number.ok_or_else(|| match MAX {
        u32::MAX => format!("expected a whole number from {MIN}"),
        _ => format!("expected a whole number from {MIN} to {MAX}"),
    })
}

/// Parses a TCP port.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| "expected a port from 1 to 65535".to_owned())
}
