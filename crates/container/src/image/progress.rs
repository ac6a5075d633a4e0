//! Condenses the progress of a build: every line of its steps, and a line per quarter of each pulled layer.

use std::collections::HashMap;

use bollard::models::{BuildInfo, ProgressDetail};

use super::super::error::words;

/// The last reported line of each layer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    told: HashMap<String, String>,
}

/// Limit of tracked layers; an image has few.
const MAX_LAYERS: usize = 1_000;

impl Progress {
    /// Returns the line to report, if it is new.
    pub(super) fn line(&mut self, info: &BuildInfo) -> Option<String> {
        if let Some(line) = info.stream.as_deref().map(words).filter(|line| !line.is_empty()) {
            return Some(line);
        }
        let status = words(info.status.as_deref()?);
        let Some(layer) = info.id.as_deref().map(words) else {
            return Some(status);
        };
        let line = match info.progress_detail.as_ref().and_then(quarters) {
            Some(percent) => format!("{layer}: {status} {percent} %"),
            None => format!("{layer}: {status}"),
        };
        let is_news = self.told.get(&layer) != Some(&line);
        if is_news && (self.told.len() < MAX_LAYERS || self.told.contains_key(&layer)) {
            self.told.insert(layer, line.clone());
            return Some(line);
        }
        None
    }
}

/// Returns the progress of a layer in steps of 25 percent; `None` before the first.
fn quarters(detail: &ProgressDetail) -> Option<u64> {
    let (current, total) = (
        u64::try_from(detail.current?).ok()?,
        u64::try_from(detail.total?).ok()?,
    );
    let quarter = current.saturating_mul(4).checked_div(total)?.min(4);
    (quarter > 0).then_some(quarter * 25)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulled(status: &str, layer: &str, amounts: Option<(i64, i64)>) -> BuildInfo {
        BuildInfo {
            id: Some(layer.to_owned()),
            status: Some(status.to_owned()),
            progress_detail: amounts.map(|(current, total)| ProgressDetail {
                current: Some(current),
                total: Some(total),
            }),
            ..BuildInfo::default()
        }
    }

    #[test]
    fn layers_are_told_of_when_there_is_news() {
        let mut progress = Progress::default();
        let mut show = |status, layer, amounts| progress.line(&pulled(status, layer, amounts));
        assert_eq!(
            show("Pulling fs layer", "a", None).unwrap(),
            "a: Pulling fs layer"
        );
        assert_eq!(
            show("Downloading", "a", Some((1, 100))).unwrap(),
            "a: Downloading"
        );
        assert_eq!(show("Downloading", "a", Some((20, 100))), None);
        assert_eq!(
            show("Downloading", "a", Some((26, 100))).unwrap(),
            "a: Downloading 25 %"
        );
        assert_eq!(
            show("Downloading", "b", Some((26, 100))).unwrap(),
            "b: Downloading 25 %"
        );
        assert_eq!(
            show("Downloading", "a", Some((300, 100))).unwrap(),
            "a: Downloading 100 %"
        );
        assert_eq!(
            show("Pull complete", "a", Some((0, 0))).unwrap(),
            "a: Pull complete"
        );
        assert_eq!(show("Pull complete", "a", None), None);
    }

    #[test]
    fn steps_are_told_of_as_they_come() {
        let mut progress = Progress::default();
        let step = BuildInfo {
            stream: Some("Step 1/6 : FROM x\n".to_owned()),
            ..BuildInfo::default()
        };
        assert_eq!(progress.line(&step).unwrap(), "Step 1/6 : FROM x");
        assert_eq!(progress.line(&step).unwrap(), "Step 1/6 : FROM x");
        assert_eq!(progress.line(&BuildInfo::default()), None);
    }
}
