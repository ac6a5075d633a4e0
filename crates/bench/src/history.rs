//! The figures of earlier measurements.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde_json::Value;

use super::figure::Figure;

/// Maximum number of measurements in the file. The oldest are evicted.
const MAX_MEASUREMENTS: usize = 1000;

/// A file of measurements, the documents of `bench --json`, one a line, the oldest first.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    lines: Vec<String>,
    /// The last value of each figure, by its name and what it measures.
    last: HashMap<(String, String), f64>,
}

impl History {
    /// Reads the file, if it exists. Only figures of the same kind of build (`debug` or `release`) are compared.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: PathBuf, build: &str) -> io::Result<Self> {
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let mut history = Self {
            path,
            lines: Vec::new(),
            last: HashMap::new(),
        };
        for line in text.lines() {
            // Half a line is a measurement that somebody cut.
            let Ok(document) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            history.lines.push(line.to_owned());
            if document["build"] == build {
                let figures = document["figures"].as_array().into_iter().flatten();
                history.last.extend(figures.filter_map(value));
            }
        }
        Ok(history)
    }

    /// Returns the value that was kept last for a figure.
    pub fn last(&self, figure: &Figure) -> Option<f64> {
        self.last
            .get(&(figure.name.to_owned(), figure.of.clone()))
            .copied()
    }

    /// Adds a measurement. The file is replaced as a whole, so that a full disk or a kill leaves the old one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(mut self, document: &Value) -> io::Result<()> {
        self.lines.push(document.to_string());
        let surplus = self.lines.len().saturating_sub(MAX_MEASUREMENTS);
        let text: String = self.lines.drain(surplus..).map(|line| line + "\n").collect();
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            // The error that matters is the first.
            let _ = fs::remove_file(&new);
        }
        written
    }
}

fn value(figure: &Value) -> Option<((String, String), f64)> {
    let text = |field: &str| Some(figure[field].as_str()?.to_owned());
    // Files of 0.1 have `what`.
    let of = text("of").or_else(|| text("what"))?;
    Some(((text("name")?, of), figure["value"].as_f64()?))
}

#[cfg(test)]
mod tests {
    use super::super::figure::Unit;
    use super::*;
    use serde_json::json;

    fn measurement(build: &str, value: f64) -> Value {
        let figure = Figure::new("start", "print", value, Unit::Milliseconds);
        json!({"build": build, "figures": [figure, Figure::unmeasured("none", "why".to_owned())]})
    }

    #[test]
    fn the_last_value_of_the_same_build_is_compared() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bench.jsonl");
        let open = || History::open(path.clone(), "release").unwrap();
        let figure = Figure::new("start", "print", 9.0, Unit::Milliseconds);
        assert_eq!(open().last(&figure), None);
        for (build, value) in [("release", 1.0), ("release", 2.0), ("debug", 3.0)] {
            open().keep(&measurement(build, value)).unwrap();
        }
        assert_eq!(open().last(&figure), Some(2.0));
        assert_eq!(measurement("release", 1.0)["figures"][0]["of"], "print");
        // Figures that were kept under the member's former name.
        let old = fs::read_to_string(&path).unwrap().replace("\"of\"", "\"what\"");
        fs::write(&path, old).unwrap();
        assert_eq!(open().last(&figure), Some(2.0));
        assert_eq!(
            open().last(&Figure::new("start", "other", 9.0, Unit::Ratio)),
            None
        );
    }

    #[test]
    fn half_a_line_is_skipped_and_the_oldest_make_room() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bench.jsonl");
        let lines: Vec<String> = (0..MAX_MEASUREMENTS)
            .map(|number| measurement("release", number as f64).to_string())
            .collect();
        fs::write(&path, format!("{}\n{{\"build\":", lines.join("\n"))).unwrap();
        let history = History::open(path.clone(), "release").unwrap();
        history.keep(&measurement("release", -1.0)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), MAX_MEASUREMENTS);
        assert_eq!(text.lines().next(), lines.get(1).map(String::as_str));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
