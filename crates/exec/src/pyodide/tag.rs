//! Wheel file names and compatibility tags.

use std::fmt;

/// The platform that wheels must be compatible with.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Python's minor version: 14 of 3.14.
    minor: u16,
    platform: String,
}

/// A parsed wheel file name.
#[derive(Debug)]
pub(super) struct WheelName<'a> {
    project: &'a str,
    python: &'a str,
    abi: &'a str,
    platform: &'a str,
}

impl Target {
    /// Builds the target from Pyodide's versions; `python` is like `3.14.2`.
    pub(super) fn new(python: &str, abi: &str, architecture: &str) -> Option<Self> {
        let minor = python.strip_prefix("3.")?.split('.').next()?;
        Some(Self {
            minor: minor.parse().ok()?,
            platform: format!("pyemscripten_{abi}_{architecture}"),
        })
    }

    /// Returns `true` if a wheel of this name can be installed.
    pub(super) fn takes(&self, name: &WheelName<'_>) -> bool {
        let any = |tags: &str, fits: &dyn Fn(&str) -> bool| tags.split('.').any(fits);
        let own = format!("cp3{}", self.minor);
        let not_newer = |python: &str| {
            let minor = python.strip_prefix("cp3").or_else(|| python.strip_prefix("py3"));
            minor.is_some_and(|minor| minor.parse().is_ok_and(|minor: u16| minor <= self.minor))
        };
        let compiled = any(name.platform, &|platform| platform == self.platform);
        let pure = any(name.platform, &|platform| platform == "any");
        let plain = any(name.abi, &|abi| abi == "none")
            && any(name.python, &|python| {
                python == "py3" || python == own || python.starts_with("py3") && not_newer(python)
            });
        let exact = any(name.abi, &|abi| abi == own) && any(name.python, &|python| python == own);
        let stable = any(name.abi, &|abi| abi == "abi3")
            && any(name.python, &|python| {
                python.starts_with("cp3") && not_newer(python)
            });
        compiled && (plain || exact || stable) || pure && plain
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "cp3{}-{}", self.minor, self.platform)
    }
}

impl<'a> WheelName<'a> {
    /// Parses `name-version[-build]-python-abi-platform.whl`.
    pub(super) fn parse(file: &'a str) -> Option<Self> {
        let parts: Vec<_> = file.strip_suffix(".whl")?.split('-').collect();
        let (project, tags) = match parts.as_slice() {
            [project, _, tags @ ..] | [project, _, _, tags @ ..] if tags.len() == 3 => (*project, tags),
            _ => return None,
        };
        let [python, abi, platform] = <[&str; 3]>::try_from(tags).ok()?;
        (!project.is_empty()).then_some(Self {
            project,
            python,
            abi,
            platform,
        })
    }

    /// Returns the normalized project name.
    pub(super) fn project(&self) -> String {
        self.project.to_ascii_lowercase().replace(['.', '-'], "_")
    }
}

impl fmt::Display for WheelName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}-{}", self.python, self.abi, self.platform)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tags: &str, expected: bool) {
        let target = Target::new("3.14.2", "2026_0", "wasm32").unwrap();
        let file = format!("a-1.0-{tags}.whl");
        let name = WheelName::parse(&file).unwrap();
        assert_eq!(target.takes(&name), expected, "{tags}");
    }

    #[test]
    fn tags_say_where_a_wheel_fits() {
        for tags in [
            "py3-none-any",
            "py2.py3-none-any",
            "cp314-none-any",
            "py38-none-any",
            "cp314-cp314-pyemscripten_2026_0_wasm32",
            "cp39-abi3-pyemscripten_2026_0_wasm32",
            "cp314-abi3-pyemscripten_2026_0_wasm32",
            "py3-none-pyemscripten_2026_0_wasm32",
            "cp313.cp314-cp313.cp314-pyemscripten_2025_0_wasm32.pyemscripten_2026_0_wasm32",
        ] {
            check(tags, true);
        }
        for tags in [
            "py2-none-any",
            "py315-none-any",
            "cp313-cp313-pyemscripten_2026_0_wasm32",
            "cp314-cp314t-pyemscripten_2026_0_wasm32",
            "cp315-abi3-pyemscripten_2026_0_wasm32",
            "cp314-cp314-pyemscripten_2025_0_wasm32",
            "cp314-cp314-emscripten_4_0_9_wasm32",
            "cp314-cp314-manylinux_2_28_x86_64",
            "cp314-cp314-any",
        ] {
            check(tags, false);
        }
    }

    #[test]
    fn names_are_those_of_wheels() {
        let with_build = WheelName::parse("A.b-1.0-2-py3-none-any.whl").unwrap();
        assert_eq!(with_build.project(), "a_b");
        for name in [
            "a.whl",
            "a-1.whl",
            "a-1-py3-none.whl",
            "a-1-2-3-py3-none-any.whl",
            "a-1-py3-none-any",
        ] {
            assert!(WheelName::parse(name).is_none(), "{name}");
        }
    }
}
