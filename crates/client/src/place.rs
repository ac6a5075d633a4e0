//! Paths in sandboxes, as the command line has them.

use std::path::Path;

/// Returns an absolute path in a sandbox: a relative one is below `/workspace`.
pub fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/workspace/{path}"),
    }
}

/// A path of `cp`: on this machine, or in a sandbox as `NAME:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Here(String),
    There { sandbox: String, path: String },
}

impl Place {
    /// Parses a path of `cp`. With a slash before the colon, it is a path of this machine.
    pub fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some((sandbox, path)) if !sandbox.is_empty() && !sandbox.contains('/') => Self::There {
                sandbox: sandbox.to_owned(),
                path: absolute(path),
            },
            _ => Self::Here(text.to_owned()),
        }
    }
}

/// Returns the path of a copy: a name below a directory if `to` ends with a slash.
pub fn target(from: &str, to: &str) -> String {
    let name = Path::new(from).file_name().and_then(|name| name.to_str());
    match (to.ends_with('/'), name) {
        (true, Some(name)) => format!("{to}{name}"),
        _ => to.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_sandbox_has_a_name_before_it() {
        let there = |sandbox: &str, path: &str| Place::There {
            sandbox: sandbox.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(Place::parse("a:/b"), there("a", "/b"));
        assert_eq!(Place::parse("a:/b:c"), there("a", "/b:c"));
        assert_eq!(Place::parse("a:b/"), there("a", "/workspace/b/"));
        assert_eq!(Place::parse("a:"), there("a", "/workspace/"));
        for here in ["a", "./a:/b", "./a:b", "/a:/b", ":/b", ":b"] {
            assert_eq!(Place::parse(here), Place::Here(here.to_owned()));
        }
        assert_eq!(target("/x/data.csv", "/tmp/"), "/tmp/data.csv");
        assert_eq!(target("/x/data.csv", "/tmp/y"), "/tmp/y");
    }
}
