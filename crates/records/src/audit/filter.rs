//! Records of the log chosen by their members.

use ringfence_policy::Scope;
use serde_json::{Map, Value};

/// The members that records must have. Without any, all records match, and damaged lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub scope: Option<Scope>,
    /// The client, such as the id of a key; of an answer, the person.
    pub client: Option<String>,
    pub tool: Option<String>,
    pub outcome: Option<String>,
}

impl Filter {
    pub const fn is_empty(&self) -> bool {
        self.scope.is_none() && self.client.is_none() && self.tool.is_none() && self.outcome.is_none()
    }

    /// Returns `true` if a record has all of the members.
    pub fn matches(&self, record: &Map<String, Value>) -> bool {
        let is = |found: Option<&Value>, wanted: Option<&str>| {
            wanted.is_none_or(|wanted| found.and_then(Value::as_str) == Some(wanted))
        };
        // The log of commands on the host has answers, which somebody gave, beside uses, which somebody asked for.
        let who = |of_use: &str, of_answer: &str| {
            let used = record.get("who").and_then(|who| who.get(of_use));
            used.or_else(|| record.get("answer").and_then(|answer| answer.get(of_answer)))
        };
        is(who("scope", "scope"), self.scope.as_ref().map(Scope::as_str))
            && is(who("client", "by"), self.client.as_deref())
            && is(record.get("tool"), self.tool.as_deref())
            && is(record.get("outcome"), self.outcome.as_deref())
    }

    /// Returns `true` if a line of the log matches.
    pub fn matches_line(&self, line: &str) -> bool {
        self.is_empty() || serde_json::from_str(line).is_ok_and(|record| self.matches(&record))
    }

    /// Returns the last `most` lines that match.
    pub fn last<'a>(&self, lines: &'a [String], most: usize) -> Vec<&'a str> {
        let matching = lines.iter().rev().filter(|line| self.matches_line(line));
        let mut last: Vec<&str> = matching.take(most).map(String::as_str).collect();
        last.reverse();
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_with_all_members_are_found() {
        let lines = [
            r#"{"who":{"scope":"a","client":"rf_1"},"tool":"run_code","outcome":"failed"}"#,
            r#"{"who":{"scope":"a","client":"rf_1"},"tool":"run_code","outcome":"answered"}"#,
            r#"{"who":{"scope":"b","client":"rf_2"},"tool":"run","outcome":"failed"}"#,
            r#"{"answer":{"scope":"a","by":"ann"}}"#,
            "torn",
        ]
        .map(str::to_owned);
        let check = |filter: Filter, most: usize, expected: &[usize]| {
            let expected: Vec<&str> = expected.iter().map(|index| lines[*index].as_str()).collect();
            assert_eq!(filter.last(&lines, most), expected, "{filter:?}");
        };
        let of = |member: &str, value: &str| {
            let wanted = |name: &str| (member == name).then(|| value.to_owned());
            Filter {
                scope: wanted("scope").map(|scope| scope.parse().unwrap()),
                client: wanted("client"),
                tool: wanted("tool"),
                outcome: wanted("outcome"),
            }
        };
        check(Filter::default(), 2, &[3, 4]);
        check(of("scope", "a"), 9, &[0, 1, 3]);
        check(of("client", "rf_1"), 1, &[1]);
        check(of("client", "ann"), 9, &[3]);
        check(of("outcome", "failed"), 9, &[0, 2]);
        let tool = Some("run".to_owned());
        check(
            Filter {
                tool,
                ..of("scope", "a")
            },
            9,
            &[],
        );
    }
}
