//! Standing approvals ("always"), for a preview of a decision.

use std::path::Path;

use ringfence_policy::Scope;
use ringfence_policy::cascade::{Decision, Verdict};
use ringfence_records::approval::{Approved, Entry, Error};

use super::{
    HostSettings, LineDirectory, MAX_LASTING_RISK, PathIdentity, apply_to, executable_config, is_blind,
    is_computed, may_last, runs_code,
};

/// A standing approval of exactly this text in this directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The command runs without a question.
    Holds(Entry),
    /// The approval no longer applies, for this reason, and a person is asked again.
    Ended(Entry, &'static str),
}

/// Returns the standing approval of a line for a scope, in the directory where commands start, if there is
/// one. A line that a list allows needs none.
///
/// # Errors
/// If the file of approvals cannot be used: then it approves nothing.
pub fn standing(
    line: &str,
    decision: &Decision,
    scope: &Scope,
    host: &HostSettings,
    approved: &Approved,
) -> Result<Option<Standing>, Error> {
    if decision.verdict != Verdict::Review {
        return Ok(None);
    }
    let start = host.directory.display().to_string();
    let same =
        |entry: &Entry| entry.text == line && entry.scope == scope.as_str() && entry.directory == start;
    let entries: Vec<Entry> = approved.entries()?.into_iter().filter(same).collect();
    let Some(last) = entries.last().cloned() else {
        return Ok(None);
    };
    let files = match files(line, decision, host) {
        Ok(files) => files,
        Err(reason) => return Ok(Some(Standing::Ended(last, reason))),
    };
    let holding = entries.into_iter().find(|entry| entry.files == files);
    Ok(Some(match holding {
        Some(entry) => Standing::Holds(entry),
        None => Standing::Ended(last, "the files that it names have changed since"),
    }))
}

/// Returns the digest of the files that the approval must name, as a review computes it.
///
/// # Errors
/// If a standing approval does not count for the line; the reason.
fn files(line: &str, decision: &Decision, host: &HostSettings) -> Result<Option<String>, &'static str> {
    let directory = &*host.directory;
    let mut decision = decision.clone();
    let config = executable_config(line, directory, host.home(), &host.ledger);
    if let Some(file) = &config {
        apply_to(&mut decision, file);
    }
    let place = LineDirectory {
        directory: directory.to_path_buf(),
        home: host.home().map(Path::to_path_buf),
        own: host.own.clone(),
    };
    let named = PathIdentity::by(line, runs_code(&decision), &place)
        .map_err(|_| "it names more files than can be watched")?;
    if config.is_some() || named.is_partial() || is_computed(line, &decision) {
        return Err("an approval holds only once, because what it runs can change");
    }
    if !may_last(&decision) || decision.floor >= MAX_LASTING_RISK {
        return Err("such a command cannot be approved always");
    }
    let contents = named.contents().filter(|_| !is_blind(&decision));
    Ok(contents.map(|files| files.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringfence_exec::protected::Protected;
    use ringfence_exec::trust::Ledger;
    use ringfence_policy::Timeout;
    use ringfence_policy::cascade::{Rules, decide};
    use ringfence_records::approval::Service;

    use super::super::ObeyedPlaces;
    use super::*;

    fn host(state: &Path, directory: &Path) -> HostSettings {
        HostSettings {
            rules: Rules::default(),
            assessor: None,
            variables: Vec::new(),
            directory: directory.to_path_buf(),
            timeout: Timeout::seconds(1),
            patience: Timeout::seconds(1),
            own: Vec::new(),
            ledger: Ledger::at(state),
            obeyed: ObeyedPlaces {
                trusted: Vec::new(),
                protected: Protected::standard(),
            },
        }
    }

    fn found(state: &Path, directory: &Path, line: &str) -> Option<Standing> {
        let decision = decide(line, &Rules::default());
        let scope = Scope::local();
        let approved = Service::at(state).approved();
        standing(line, &decision, &scope, &host(state, directory), &approved).unwrap()
    }

    fn write(state: &Path, entries: &[(&str, &Path, Option<String>)]) {
        let block = |(text, directory, files): &(&str, &Path, Option<String>)| {
            let files = files.as_ref().map(|files| format!("files = '{files}'\n"));
            format!(
                "[[command]]\ntext = '{text}'\nscope = 'local'\ndirectory = '{}'\nsince = '2026-11-01T00:00:00Z'\n{}",
                directory.display(),
                files.unwrap_or_default()
            )
        };
        let text: String = entries.iter().map(block).collect();
        fs::write(state.join("approved.toml"), text).unwrap();
    }

    #[test]
    fn an_approval_holds_for_its_text_its_directory_and_its_files() {
        let (state, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (state, work) = (state.path(), work.path());
        assert_eq!(found(state, work, "touch made"), None);
        write(state, &[("touch made", work, None)]);
        assert!(matches!(
            found(state, work, "touch made"),
            Some(Standing::Holds(_))
        ));
        assert_eq!(found(state, work, "touch other"), None);
        assert_eq!(found(state, state, "touch made"), None);

        fs::write(work.join("a"), "1").unwrap();
        let line = "cp a b";
        let digest = files(line, &decide(line, &Rules::default()), &host(state, work)).unwrap();
        write(state, &[(line, work, digest)]);
        assert!(matches!(found(state, work, line), Some(Standing::Holds(_))));
        fs::write(work.join("a"), "2").unwrap();
        assert!(
            matches!(found(state, work, line), Some(Standing::Ended(_, reason)) if reason.contains("changed"))
        );
    }

    #[test]
    fn what_a_hand_wrote_into_the_file_holds_only_if_it_was_offered() {
        let (state, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for line in ["bash deploy.sh", "rm -rf build"] {
            write(state.path(), &[(line, work.path(), None)]);
            let found = found(state.path(), work.path(), line);
            assert!(matches!(found, Some(Standing::Ended(..))), "{line}: {found:?}");
        }
    }
}
