//! A measured figure: its value, its peer, and its target.

use ringfence_gateway_protocol::visible;
use serde::Serialize;

/// Repeated measurements of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    pub median: f64,
    pub min: f64,
    pub p99: f64,
    pub count: usize,
}

impl Sample {
    /// Summarises the values; NaN if there are none.
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = values.len().saturating_sub(1);
            let index = (last as f64 * share).round() as usize;
            values.get(index).copied().unwrap_or(f64::NAN)
        };
        Self {
            median: at(0.5),
            min: at(0.0),
            p99: at(0.99),
            count: values.len(),
        }
    }
}

/// The target of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Below(limit) => value < limit,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {limit}"),
            Self::AtLeast(limit) => format!("≥ {limit}"),
            Self::Below(limit) => format!("< {limit}"),
        }
    }
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    #[serde(rename = "ratio")]
    Ratio,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "MiB")]
    Mebibytes,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "count")]
    Count,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Ratio => format!("{value:.2} ×"),
            Self::Milliseconds => format!("{value:.2} ms"),
            Self::Mebibytes => format!("{value:.2} MiB"),
            Self::PerSecond => format!("{value:.0} /s"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    pub name: &'static str,
    /// The subject of the measurement or comparison.
    pub of: String,
    /// The value compared with the target; `None` if it could not be measured.
    pub value: Option<f64>,
    pub unit: Unit,
    pub target: Option<Target>,
    /// Set if the target is met; `None` without a target, or a value.
    pub met: Option<bool>,
    /// Our measurements, in milliseconds or the figure's own unit.
    pub ours: Option<Sample>,
    /// The peer's measurements, interleaved with Ringfence's.
    pub peer: Option<Sample>,
    /// The value that was kept last, with `--history`.
    pub before: Option<f64>,
    pub note: Option<String>,
}

impl Figure {
    /// Creates a figure of a single value.
    pub(super) fn new(name: &'static str, of: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self {
            name,
            of: of.into(),
            value: Some(value),
            unit,
            target: None,
            met: None,
            ours: None,
            peer: None,
            before: None,
            note: None,
        }
    }

    /// Creates the figures of repeated times: the median, which has a target, and the 99th percentile.
    pub(super) fn times(name: &'static str, times: Sample, target: Target) -> Vec<Self> {
        let figure = |of, value| Self::new(name, of, value, Unit::Milliseconds);
        vec![
            figure("p50", times.median).with(times).against(target),
            figure("p99", times.p99),
        ]
    }

    /// Creates a figure of our median divided by the peer's.
    pub(super) fn ratio(name: &'static str, of: impl Into<String>, ours: Sample, peer: Sample) -> Self {
        let value = ours.median / peer.median;
        Self::new(name, of, value, Unit::Ratio).with(ours).beside(peer)
    }

    /// Creates a figure of a failed measurement, with the reason.
    pub(super) fn unmeasured(name: &'static str, why: String) -> Self {
        Self {
            value: None,
            ..Self::new(name, "not measured", f64::NAN, Unit::Count).noting(why)
        }
    }

    pub(super) fn with(self, ours: Sample) -> Self {
        Self {
            ours: Some(ours),
            ..self
        }
    }

    pub(super) fn beside(self, peer: Sample) -> Self {
        Self {
            peer: Some(peer),
            ..self
        }
    }

    pub(super) fn noting(self, note: impl Into<String>) -> Self {
        Self {
            note: Some(note.into()),
            ..self
        }
    }

    pub(super) fn against(self, target: Target) -> Self {
        Self {
            target: Some(target),
            met: self.value.map(|value| target.is_met(value)),
            ..self
        }
    }

    /// Adds the value that was kept last, if there is one.
    #[must_use]
    pub fn after(self, before: Option<f64>) -> Self {
        Self { before, ..self }
    }

    /// Renders the table row, and the change and the note below. `paint` colours a verdict, which is `true` for a target that is met.
    pub fn line(&self, paint: impl Fn(&str, bool) -> String) -> String {
        let value = self.value.map_or("-".to_owned(), |value| self.unit.text(value));
        let target = self.target.map_or(String::new(), Target::text);
        let verdict = match self.met {
            Some(true) => paint("met    ", true),
            Some(false) => paint("NOT MET", false),
            None => "       ".to_owned(),
        };
        let mut line = format!(
            "{:<18} {:<34} {value:>11}  {target:<7} {verdict}  {:<22} {}",
            self.name,
            self.of,
            sample(self.ours),
            sample(self.peer)
        );
        line.truncate(line.trim_end().len());
        line.push('\n');
        if let (Some(before), Some(value)) = (self.before, self.value) {
            let ratio = value / before;
            let before = self.unit.text(before);
            line.push_str(&format!(
                "{:<18}   kept before: {before}, now {ratio:.2} times that\n",
                ""
            ));
        }
        if let Some(note) = &self.note {
            line.push_str(&format!("{:<18}   {}\n", "", visible(note)));
        }
        line
    }
}

fn sample(sample: Option<Sample>) -> String {
    sample.map_or(String::new(), |sample| {
        format!("{:.2} / {:.2} / {:.2}", sample.median, sample.min, sample.p99)
    })
}

/// Renders the column headers.
pub fn header() -> String {
    format!(
        "{:<18} {:<34} {:>11}  {:<7} {:<7}  {:<22} {}\n",
        "FIGURE", "OF", "VALUE", "TARGET", "", "OURS median/min/p99", "PEER median/min/p99 (ms)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_ordered_first() {
        let sample = Sample::of((1..=101).rev().map(f64::from).collect());
        assert_eq!((sample.min, sample.median, sample.p99), (1.0, 51.0, 100.0));
        assert!(Sample::of(Vec::new()).median.is_nan());
    }

    #[test]
    fn a_figure_says_honestly_whether_it_is_good_enough() {
        let figure = |value| Figure::new("x", "y", value, Unit::Ratio);
        assert_eq!(figure(1.8).against(Target::AtMost(1.8)).met, Some(true));
        assert_eq!(figure(1.81).against(Target::AtMost(1.8)).met, Some(false));
        assert_eq!(figure(449.0).against(Target::AtLeast(450.0)).met, Some(false));
        assert_eq!(figure(1.0).against(Target::Below(1.0)).met, Some(false));
        assert_eq!(figure(1.0).met, None);
        let unmeasured = Figure::unmeasured("x", "why".to_owned()).against(Target::AtMost(1.0));
        assert_eq!(unmeasured.met, None);
        // NaN must never pass.
        assert_eq!(figure(f64::NAN).against(Target::AtMost(1.8)).met, Some(false));
    }

    #[test]
    fn lines_fit_the_header() {
        let sample = Sample::of(vec![14.0]);
        let line = Figure::ratio("run-cold", "against python3", sample, Sample::of(vec![7.0]))
            .against(Target::AtMost(1.8))
            .line(|text, _| text.to_owned());
        let column = |text: &str, word: &str| {
            let bytes = text.find(word).unwrap();
            text[..bytes].chars().count()
        };
        assert_eq!(column(&line, "≤ 1.8"), column(&header(), "TARGET"));
        assert_eq!(column(&line, "14.00 /"), column(&header(), "OURS"));
        assert!(line.contains("2.00 ×") && line.contains("NOT MET"), "{line}");
    }
}
