//! The risk of a command line: the policy's minimum (floor) and a model's score.

use ringfence_policy::cascade::Decision;

use ringfence_assessor::{Model, ScoreError};

/// A line of this risk or a higher one needs approval each time.
pub(crate) const MAX_LASTING_RISK: u8 = 9;

/// The risk of a line that no list allows.
#[derive(Debug)]
pub(crate) struct Risk {
    floor: u8,
    threshold: Option<u8>,
    assessment: Option<Assessment>,
}

/// A model's score, or the reason for its absence.
#[derive(Debug)]
struct Assessment {
    model: String,
    score: Result<u8, ScoreError>,
}

impl Risk {
    /// Returns the risk of a line that no model has scored.
    pub(crate) fn of(decision: &Decision, threshold: Option<u8>) -> Self {
        Self {
            floor: decision.floor,
            threshold,
            assessment: None,
        }
    }

    /// Records a model's score, or the reason for its absence.
    pub(crate) fn assessed(&mut self, model: &Model, score: Result<u8, ScoreError>) {
        let model = model.to_string();
        self.assessment = Some(Assessment { model, score });
    }

    /// Returns the model's score, but never less than the floor.
    pub(crate) fn value(&self) -> u8 {
        let score = self.assessment.as_ref().and_then(|said| said.score.clone().ok());
        score.unwrap_or_default().max(self.floor)
    }

    /// Returns `true` if the score is below the threshold, so that the line runs without a person.
    pub(crate) fn is_let_run(&self) -> bool {
        let has_score = self.assessment.as_ref().is_some_and(|said| said.score.is_ok());
        has_score && self.threshold.is_some_and(|threshold| self.value() < threshold)
    }

    /// Returns the model's result as shown to a person.
    pub(crate) fn reason(&self) -> Option<String> {
        let Assessment { model, score } = self.assessment.as_ref()?;
        Some(match score {
            Ok(score) => format!("the model {model} scores the risk {score} of 10"),
            Err(why) => format!("the model {model} gave no score: {why}"),
        })
    }

    /// Returns the record for the audit log: floor, model, score, risk and threshold.
    pub(crate) fn recorded(&self, decision: &Decision) -> String {
        let (verdict, stage) = (decision.verdict.name(), decision.stage.name());
        let floor = self.floor;
        let mut text = format!("{verdict} ({stage}), risk at least {floor}");
        if let Some(Assessment { model, score }) = &self.assessment {
            match score {
                Ok(score) => text.push_str(&format!("; {model}: {score}")),
                Err(why) => text.push_str(&format!("; {model}: no score, {why}")),
            }
        }
        if let Some(threshold) = self.threshold {
            text.push_str(&format!("; risk {}, threshold {threshold}", self.value()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::cascade::{Rules, decide};

    fn risk(line: &str, threshold: Option<u8>, score: Result<u8, ScoreError>) -> Risk {
        let rules = Rules {
            threshold,
            ..Rules::default()
        };
        let mut risk = Risk::of(&decide(line, &rules), threshold);
        risk.assessed(&"openai/small".parse().unwrap(), score);
        risk
    }

    #[test]
    fn a_model_raises_the_risk_and_never_lowers_it() {
        for (line, score, value, runs) in [
            ("ls", 0, 0, true),
            ("ls", 4, 4, true),
            ("ls", 5, 5, false),
            ("ls", 10, 10, false),
            ("touch x", 0, 6, false),
            ("rm -rf /srv", 0, 10, false),
            ("echo $(", 0, 9, false),
        ] {
            let risk = risk(line, Some(5), Ok(score));
            assert_eq!((risk.value(), risk.is_let_run()), (value, runs), "{line} {score}");
        }
        // Even the highest threshold never allows the highest risk.
        assert!(!risk("rm -rf /srv", Some(10), Ok(0)).is_let_run());
        assert!(!risk("ls", Some(0), Ok(0)).is_let_run());
    }

    #[test]
    fn without_a_score_or_a_threshold_nothing_is_let_run() {
        assert!(!risk("ls", Some(5), Err(ScoreError::NoInteger)).is_let_run());
        assert!(!risk("ls", None, Ok(0)).is_let_run());
        let unasked = Risk::of(&decide("ls", &Rules::default()), Some(5));
        assert!(!unasked.is_let_run() && unasked.reason().is_none());
    }
}
