//! Tests of interpreter discovery, with real and fake interpreters.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::path::is_broad;
use super::python::OLDEST;
use super::*;

const SYSTEM: &str = "/usr/bin/python3";

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes an executable script; `{dir}` in it is replaced with this directory.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = text.replace("{dir}", self.0.path().to_str().unwrap());
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Writes a script that runs the system's Python and counts the starts.
    fn counting_shim(&self, name: &str) -> PathBuf {
        self.script(name, "echo x >> {dir}/starts; exec /usr/bin/python3 \"$@\"")
    }

    fn starts(&self) -> usize {
        fs::read_to_string(self.path("starts")).map_or(0, |text| text.lines().count())
    }
}

#[expect(clippy::disallowed_methods, reason = "the test makes a virtual environment")]
fn make_venv(path: &Path) {
    let status = std::process::Command::new(SYSTEM)
        .args(["-m", "venv", "--without-pip"])
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Runs the program outside of any fence, with the arguments it would get inside.
#[expect(
    clippy::disallowed_methods,
    reason = "the tests start interpreters of their own"
)]
fn ask(question: &Question<'_>) -> Result<ProbeOutput, ProbeError> {
    let variables = question.environment.iter();
    let output = std::process::Command::new(question.program)
        .args(question.arguments)
        .env_clear()
        .envs(variables.map(|(name, value)| (name.as_str(), value)))
        .current_dir("/")
        .output()
        .map_err(|error| ProbeError::Fence(error.to_string()))?;
    Ok(ProbeOutput {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        succeeded: output.status.success(),
    })
}

fn find_python(
    configured: Option<&Path>,
    path_var: Option<&OsStr>,
    cache_dir: Option<&Path>,
) -> Result<Python, Error> {
    super::find_python(configured, path_var, cache_dir, &ask)
}

fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn the_systems_python_needs_nothing_but_usr() {
    let python = find_python(Some(Path::new(SYSTEM)), None, None).unwrap();
    assert_eq!(python.executable, Path::new(SYSTEM));
    assert!(python.version >= OLDEST);
    assert_eq!(
        (python.prefix.as_path(), python.base_prefix.as_path()),
        (Path::new("/usr"), Path::new("/usr"))
    );
    assert!(python.stdlib.join("os.py").exists());
    assert!(
        python.search_path.contains(&python.stdlib) && python.search_path.iter().all(|path| path.exists())
    );
    assert_eq!((python.library_dirs, python.links), (vec![], vec![]));
}

#[test]
fn a_program_on_the_path_comes_before_a_script() {
    let dir = Dir::new();
    dir.counting_shim("python3");
    let path = OsString::from(format!("{}:relative:/usr/bin", dir.0.path().display()));
    assert_eq!(
        find_python(None, Some(&path), None).unwrap().executable,
        Path::new(SYSTEM)
    );
    assert_eq!(dir.starts(), 0);
}

#[test]
fn a_shim_alone_on_the_path_is_resolved_to_its_program() {
    let dir = Dir::new();
    dir.counting_shim("python3");
    let python = find_python(None, Some(dir.0.path().as_os_str()), None).unwrap();
    assert_eq!(dir.starts(), 1);
    assert!(
        is_elf(&python.executable) && python.prefix == Path::new("/usr"),
        "{python:?}"
    );
}

#[test]
fn a_virtual_environment_keeps_its_name_and_shows_its_packages() {
    let dir = Dir::new();
    let venv = dir.path("venv");
    make_venv(&venv);
    for configured in [venv.clone(), venv.join("bin/python3")] {
        let python = find_python(Some(&configured), None, None).unwrap();
        assert_eq!(python.executable, venv.join("bin/python3"));
        assert_eq!(
            (&python.prefix, python.base_prefix.as_path()),
            (&venv, Path::new("/usr"))
        );
        assert!(
            python
                .search_path
                .iter()
                .any(|path| path.starts_with(&venv) && path.ends_with("site-packages"))
        );
        assert_eq!(python.library_dirs, [venv.as_path()]);
        assert!(python.links.is_empty() && !python.has_pth);
    }
}

#[test]
fn links_outside_of_what_is_shown_are_listed() {
    let dir = Dir::new();
    let link = dir.path("python");
    symlink(SYSTEM, &link).unwrap();
    let python = find_python(Some(&link), None, None).unwrap();
    assert_eq!(python.executable, link);
    assert_eq!(
        python.links,
        [Link {
            path: link,
            target: PathBuf::from(SYSTEM)
        }]
    );
}

#[test]
fn linked_directories_on_the_way_are_not_needed() {
    let dir = Dir::new();
    make_venv(&dir.path("real/venv"));
    symlink("real", dir.path("link")).unwrap();
    let expected = dir.path("real/venv/bin/python3");
    let python = find_python(Some(&dir.path("link/venv")), None, None).unwrap();
    assert_eq!(
        (&python.executable, python.prefix),
        (&expected, dir.path("real/venv"))
    );
    // A shim may use such a path, too.
    let shim = dir.script("shim", "exec {dir}/link/venv/bin/python3 \"$@\"");
    let python = find_python(Some(&shim), None, None).unwrap();
    assert_eq!(
        (&python.executable, python.prefix),
        (&expected, dir.path("real/venv"))
    );
}

#[test]
fn a_link_through_linked_directories_leads_straight_to_its_end() {
    let dir = Dir::new();
    symlink("/usr/bin", dir.path("bin")).unwrap();
    symlink("bin/python3", dir.path("python")).unwrap();
    let link = |path: &str, target: &Path| Link {
        path: dir.path(path),
        target: target.to_owned(),
    };
    let python = find_python(Some(&dir.path("python")), None, None).unwrap();
    assert_eq!(
        python.links,
        [
            link("python", Path::new("bin/python3")),
            link("bin/python3", Path::new(SYSTEM))
        ]
    );
}

#[test]
fn a_configured_name_is_looked_up_on_the_path() {
    let python = find_python(
        Some(Path::new("python3")),
        Some(OsStr::new("/nowhere:/usr/bin")),
        None,
    )
    .unwrap();
    assert_eq!(python.executable, Path::new(SYSTEM));
}

#[test]
fn what_is_configured_must_be_there() {
    let dir = Dir::new();
    fs::write(dir.path("plain"), "").unwrap();
    for missing in [dir.path("nothing"), dir.path("plain"), dir.0.path().to_owned()] {
        let error = find_python(Some(&missing), None, None).unwrap_err();
        assert!(
            matches!(&error, Error::Configured(path) if *path == missing),
            "{error}"
        );
    }
}

#[test]
fn an_old_python_is_named_with_its_version() {
    let dir = Dir::new();
    let old = dir.script(
        "python3",
        "echo x >> {dir}/starts; echo 'ringfence-probe:{\"version\": [3, 8, 18]}'",
    );
    let cache = dir.path("cache");
    for _ in 0..2 {
        let error = find_python(Some(&old), None, Some(&cache)).unwrap_err();
        assert!(
            matches!(
                error,
                Error::TooOld {
                    version: (3, 8, 18),
                    ..
                }
            ),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("is Python 3.8.18, and at least 3.9 is needed"),
            "{error}"
        );
    }
    assert_eq!(dir.starts(), 1, "an old Python is asked every time");
}

#[test]
fn a_useless_python_is_passed_over_when_another_is_there() {
    let dir = Dir::new();
    dir.script("a/python3", "exit 3");
    dir.counting_shim("b/python3");
    let path = OsString::from(format!("{}:{}", dir.path("a").display(), dir.path("b").display()));
    assert_eq!(
        find_python(None, Some(&path), None).unwrap().prefix,
        Path::new("/usr")
    );
}

#[test]
fn a_broken_python_says_what_it_said() {
    let dir = Dir::new();
    let broken = dir.script("python3", "echo first >&2; echo 'no such version' >&2; exit 1");
    let Error::Probe { source, .. } = find_python(Some(&broken), None, None).unwrap_err() else {
        panic!("not a probe error");
    };
    assert_eq!(source.to_string(), "it gave no answer: no such version");
}

/// A fake interpreter may answer anything.
#[test]
fn what_an_interpreter_says_goes_no_further_than_its_own_files() {
    let dir = Dir::new();
    let venv = dir.path("venv");
    make_venv(&venv);
    fs::create_dir_all(dir.path("secret/bin")).unwrap();
    fs::copy("/bin/true", dir.path("secret/bin/python3")).unwrap();
    let honest = find_python(Some(&venv), None, None).unwrap();
    let said = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut answer = serde_json::json!({
            "version": [3, 11, 2],
            "executable": venv.join("bin/python3"),
            "prefix": venv,
            "base_prefix": "/usr",
            "exec_prefix": venv,
            "stdlib": honest.stdlib,
            "search_path": honest.search_path,
            "real": ["/usr/bin/python3", venv, "/usr", venv],
            "sites": [],
            "has_pth": false,
        });
        change(&mut answer);
        let lying = move |_: &Question<'_>| {
            Ok(ProbeOutput {
                stdout: format!("ringfence-probe:{answer}\n"),
                stderr: String::new(),
                succeeded: true,
            })
        };
        super::find_python(Some(&venv), None, None, &lying)
    };
    assert_eq!(said(&|_| ()).unwrap(), honest);
    let secret = dir.path("secret");
    for key in ["prefix", "base_prefix", "exec_prefix", "stdlib"] {
        let claimed = said(&|answer| answer[key] = serde_json::json!(secret)).unwrap_err();
        assert!(
            matches!(&claimed, Error::Probe { source: ProbeError::Beyond(path), .. } if *path == secret),
            "{key}: {claimed:?}"
        );
    }
    let escaping = venv.join("../secret");
    for claimed in [secret.join("bin/python3"), escaping.join("bin/python3")] {
        let error = said(&|answer| answer["executable"] = serde_json::json!(claimed)).unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Probe {
                    source: ProbeError::Beyond(_),
                    ..
                }
            ),
            "{error:?}"
        );
    }
    let real = said(&|answer| answer["real"][1] = serde_json::json!(secret)).unwrap_err();
    assert!(matches!(real, Error::Probe { .. }), "{real:?}");
    // Other entries of its search path are left out.
    let python = said(&|answer| answer["search_path"] = serde_json::json!([secret, escaping, venv])).unwrap();
    assert_eq!(python.search_path, [venv.as_path()]);
    // A site directory of its own choice adds nothing, either.
    fs::write(secret.join("x.pth"), dir.path("elsewhere").to_str().unwrap()).unwrap();
    fs::create_dir(dir.path("elsewhere")).unwrap();
    let python = said(&|answer| answer["sites"] = serde_json::json!([secret])).unwrap();
    assert_eq!(python.library_dirs, honest.library_dirs);
}

#[test]
fn files_that_are_configuration_lead_to_no_private_place() {
    let dir = Dir::new();
    let venv = dir.path("venv");
    make_venv(&venv);
    let site = find_python(Some(&venv), None, None).unwrap().search_path;
    let site = site.iter().find(|path| path.ends_with("site-packages")).unwrap();
    for name in ["open", "home/.ssh"] {
        fs::create_dir_all(dir.path(name)).unwrap();
    }
    let names = [
        "/etc/ssl",
        "/run",
        "/",
        "/root",
        "{dir}/home/.ssh",
        "{dir}/none",
        "{dir}/open",
        "import os",
    ];
    let text = names.join("\n").replace("{dir}", dir.0.path().to_str().unwrap());
    fs::write(site.join("a.pth"), text).unwrap();
    let python = find_python(Some(&venv), None, None).unwrap();
    assert_eq!(python.library_dirs, [dir.path("open"), venv.clone()]);
    // A `home` is accepted only if it contains an interpreter.
    fs::write(
        venv.join("pyvenv.cfg"),
        format!("home = {}\n", dir.path("home").display()),
    )
    .unwrap();
    let view = view::View::of(&venv.join("bin/python3")).unwrap();
    assert_eq!(view.shown, [venv]);
}

#[test]
fn the_cache_answers_until_a_file_changes() {
    let dir = Dir::new();
    let shim = dir.counting_shim("bin/python3");
    let cache = dir.path("cache");
    let find = || find_python(Some(&shim), None, Some(&cache));
    let first = find().unwrap();
    assert_eq!(find().unwrap(), first);
    assert_eq!(dir.starts(), 1);

    age(&shim, 100);
    assert_eq!(find().unwrap(), first);
    assert_eq!(dir.starts(), 2, "a changed time went unnoticed");

    let modified = fs::metadata(&shim).unwrap().modified().unwrap();
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::metadata(&shim).unwrap().modified().unwrap(), modified);
    find().unwrap();
    assert_eq!(dir.starts(), 3, "changed permissions went unnoticed");

    fs::set_permissions(&shim, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(find(), Err(Error::Configured(_))));
}

#[test]
fn the_cache_notices_new_packages_in_a_virtual_environment() {
    let dir = Dir::new();
    let (venv, cache) = (dir.path("venv"), dir.path("cache"));
    make_venv(&venv);
    let before = find_python(Some(&venv), None, Some(&cache)).unwrap();
    let site = before
        .search_path
        .iter()
        .find(|path| path.ends_with("site-packages"))
        .unwrap();
    age(site, 100);
    assert!(!find_python(Some(&venv), None, Some(&cache)).unwrap().has_pth);
    fs::create_dir(dir.path("extra")).unwrap();
    fs::write(site.join("extra.pth"), dir.path("extra").to_str().unwrap()).unwrap();
    let after = find_python(Some(&venv), None, Some(&cache)).unwrap();
    assert!(after.has_pth && after.search_path.contains(&dir.path("extra")));
    assert!(after.library_dirs.contains(&dir.path("extra")));
}

#[test]
fn a_broken_cache_is_replaced() {
    let dir = Dir::new();
    let shim = dir.counting_shim("python3");
    fs::create_dir(dir.path("cache")).unwrap();
    let file = dir.path("cache/interpreters.json");
    for broken in ["{", "{\"format\": 99, \"entries\": []}", "\u{0}"] {
        fs::write(&file, broken).unwrap();
        find_python(Some(&shim), None, Some(&dir.path("cache"))).unwrap();
    }
    assert_eq!(dir.starts(), 3);
    find_python(Some(&shim), None, Some(&dir.path("cache"))).unwrap();
    assert_eq!(dir.starts(), 3);
    let left: Vec<_> = fs::read_dir(dir.path("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["interpreters.json"]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn nothing_found_says_where_was_looked() {
    let error = Error::NotFound {
        looked: looked(Some(OsStr::new("/a:/b"))),
    };
    let text = error.to_string();
    assert!(text.contains("PATH (/a:/b) and /usr/bin/python3"), "{text}");
    assert!(error.hint().person().contains("`sandbox.python`"));
}

#[test]
fn a_home_is_never_a_library() {
    for broad in ["/", "/root", "/home/ann", "/home/ann/.local", "/opt"] {
        assert!(is_broad(Path::new(broad)), "{broad}");
    }
    for narrow in [
        "/usr",
        "/venv",
        "/opt/python",
        "/home/ann/.venv",
        "/root/.pyenv/versions/3.12.1",
    ] {
        assert!(!is_broad(Path::new(narrow)), "{narrow}");
    }
}

#[test]
fn directories_are_listed_once_and_shared_trees_whole() {
    let paths = [
        "/opt/p/lib",
        "/opt/p",
        "/usr/lib",
        "/opt/p",
        "/nix/store/x/lib",
        "/opt/pq",
    ];
    let expected = ["/nix/store", "/opt/p", "/opt/pq"];
    assert_eq!(
        visible(paths.map(PathBuf::from).to_vec()),
        expected.map(PathBuf::from)
    );
}

#[test]
fn a_stand_in_for_node_is_passed_over() {
    let dir = Dir::new();
    fs::create_dir_all(dir.path("volta")).unwrap();
    fs::create_dir_all(dir.path("real")).unwrap();
    dir.script("nvm/node", "exit 1");
    fs::copy("/bin/true", dir.path("volta/volta-shim")).unwrap();
    symlink("volta-shim", dir.path("volta/node")).unwrap();
    fs::copy("/bin/true", dir.path("real/node")).unwrap();
    fs::create_dir_all(dir.path("lib/node_modules/npm")).unwrap();
    let path = OsString::from(
        ["nvm", "volta", "real"]
            .map(|d| dir.path(d).display().to_string())
            .join(":"),
    );
    let found = find_javascript(None, Some(&path)).unwrap();
    assert_eq!(found.executable, dir.path("real/node"));
    assert_eq!(
        (found.kind, found.prefix_dirs),
        (
            JavascriptKind::Node,
            vec![dir.path("lib/node_modules/npm"), dir.path("real")]
        )
    );
    let named = |named: &Path| find_javascript(Some(named), Some(&path)).map(|found| found.executable);
    fs::copy("/bin/true", dir.path("real/node22")).unwrap();
    fs::copy("/bin/true", dir.path("real/other")).unwrap();
    assert_eq!(named(&dir.path("real/node22")), Some(dir.path("real/node22")));
    assert_eq!(named(Path::new("node22")), Some(dir.path("real/node22")));
    assert_eq!(named(&dir.path("real/other")), None);
    assert_eq!(named(&dir.path("nvm/node")), None);
}

#[test]
fn bash_is_found() {
    assert!(find_bash().is_some_and(|path| is_elf(&path)));
}
