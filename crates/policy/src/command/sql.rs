//! Database clients: read-only queries.

use super::analysis::Analysis;
use super::effect::Effect;
use super::options::Scanned;
use crate::shell::Word;

/// Judges the queries among the arguments.
pub(super) fn check(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    let program = title.split(' ').next().unwrap_or(title);
    let mut queries: Vec<Option<String>> = scanned
        .values
        .iter()
        .filter(|(name, _)| {
            matches!(
                *name,
                "-c" | "-s" | "-e" | "-Q" | "-q" | "--command" | "--execute" | "--query" | "-cmd"
            )
        })
        .map(|(_, value)| value.clone())
        .collect();
    if matches!(program, "sqlite3" | "duckdb") {
        if !opens_by_name(program, args, scanned) {
            analysis.add(
                Effect::Unknown,
                format!("{title}: opens something other than a file by its name"),
            );
        }
        let behind = scanned.operands.iter().skip(1);
        queries.extend(behind.map(|index| args[*index].literal()));
        let opens = !scanned.operands.is_empty();
        let guarded = scanned.options.contains(&"-readonly");
        if program == "duckdb" && opens && !guarded {
            // It would create a missing database.
            match analysis.forced.last_mut() {
                Some(forced) => forced.words.push_str(" -readonly"),
                None => analysis.add(Effect::Write, "duckdb: makes the database if there is none"),
            }
        }
        if program == "sqlite3" && guarded && opens && queries.is_empty() {
            // The confinement also covers queries from standard input.
            return;
        }
    }
    hosts(program, args, title, scanned, analysis);
    if title == "sqlcmd query" {
        queries.extend(scanned.operands.iter().map(|index| args[*index].literal()));
    }
    if queries.is_empty()
        && !scanned.options.iter().any(|option| {
            matches!(*option, "-V" | "-version" | "-l" | "--list")
                && (program == "psql" || option.starts_with("-V") || *option == "-version")
        })
    {
        return analysis.add(Effect::Unknown, format!("{title}: waits for queries"));
    }
    if !queries.is_empty() && !CONFINED.contains(&program) {
        analysis.add(
            Effect::Unknown,
            format!("{title}: what a query does is up to the server, and nothing confines it"),
        );
    }
    let dots = program == "sqlite3";
    for query in queries {
        if !query.is_some_and(|query| only_asks(&query) || dots && only_shows(&query)) {
            analysis.add(Effect::Write, format!("{title}: the query may change data"));
        }
    }
}

/// Judges the hosts that the command names.
fn hosts(program: &str, args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    if args
        .iter()
        .any(|word| word.text.contains("://") || program == "psql" && word.text.contains('='))
    {
        analysis.add(
            Effect::Network,
            format!("{title}: asks a host that is named in the command"),
        );
    }
    for (name, value) in &scanned.values {
        let here = value
            .as_deref()
            .is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "::1"));
        if matches!(*name, "-h" | "--host") && !here {
            analysis.add(
                Effect::Network,
                format!("{title}: asks a host that is named in the command"),
            );
        }
    }
}

/// Returns `true` if the first operand is a file name and nothing else: both programs read URIs there, and
/// `DuckDB` the names of other systems.
fn opens_by_name(program: &str, args: &[Word], scanned: &Scanned) -> bool {
    let Some(operand) = scanned.operands.first() else {
        return true;
    };
    args[*operand].literal().is_some_and(|text| match program {
        "duckdb" => text == ":memory:" || !text.contains(':'),
        _ => !text.to_ascii_lowercase().starts_with("file:"),
    })
}

/// Programs with an embedded database that an option can confine.
const CONFINED: &[&str] = &["sqlite3", "duckdb"];

/// Words that make a query do more than read.
const CHANGES: &[&str] = &[
    "into",
    "insert",
    "update",
    "delete",
    "drop",
    "create",
    "alter",
    "copy",
    "call",
    "exec",
    "execute",
    "load",
    "outfile",
    "dumpfile",
    "attach",
    "detach",
    "pragma",
    "set",
    "merge",
    "replace",
    "truncate",
    "grant",
    "revoke",
    "lock",
    "share",
    "analyze",
    "vacuum",
    "export",
    "import",
    "install",
    "do",
    "handler",
    "using",
    "returning",
    "nextval",
    "setval",
    "go",
    "use",
    "dbcc",
    "openrowset",
    "reset",
    "begin",
    "commit",
];

/// Pure functions.
const FUNCTIONS: &[&str] = &[
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "lower",
    "upper",
    "length",
    "coalesce",
    "round",
    "abs",
    "now",
    "date",
    "version",
    "distinct",
    "trim",
    "substr",
    "substring",
    "cast",
    "ifnull",
    "nullif",
    "concat",
    "in",
    "and",
    "or",
    "not",
    "where",
    "on",
    "by",
    "select",
    "from",
    "as",
    "over",
    "extract",
    "values",
    "having",
    "when",
    "then",
    "exists",
    "sqlite_version",
    "current_date",
    "current_timestamp",
    "current_user",
    "strftime",
    "datetime",
    "total",
    "group_concat",
    "like",
];

/// Matches a client command that only lists objects.
fn only_shows(query: &str) -> bool {
    let mut words = query.split_whitespace();
    let shows = [
        ".tables",
        ".schema",
        ".indexes",
        ".indices",
        ".databases",
        ".fullschema",
        ".dbinfo",
        ".show",
    ];
    let plain = |word: &str| {
        word.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_%".contains(&byte))
    };
    !query.contains('\n') && words.next().is_some_and(|first| shows.contains(&first)) && words.all(plain)
}

/// Matches one statement that selects or describes, with known functions. Anything odd counts as a change.
fn only_asks(query: &str) -> bool {
    let query = query.trim().trim_end_matches(';').trim_end();
    if query.contains([';', '\\', '`', '!', '#', '$', '@']) || query.contains("--") || query.contains("/*") {
        return false;
    }
    let lower = query.to_ascii_lowercase();
    let mut words = lower.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
    let first = words.next().unwrap_or_default();
    if !matches!(first, "select" | "show" | "describe" | "desc") || words.any(|word| CHANGES.contains(&word))
    {
        return false;
    }
    let mut before = String::new();
    for sign in lower.chars() {
        match sign {
            '(' => {
                let name = before
                    .trim_end()
                    .rsplit(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_')
                    .next();
                let name = name.unwrap_or_default();
                // A quoted or schema-qualified name is a user-defined function.
                let odd = before.trim_end().ends_with(['"', '\'', ']']);
                let dotted = before
                    .trim_end()
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.ends_with('.'));
                if odd || dotted || !name.is_empty() && !FUNCTIONS.contains(&name) {
                    return false;
                }
                before.clear();
            }
            sign => before.push(sign),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::only_asks;

    #[test]
    fn questions_are_told_from_changes() {
        for query in [
            "SELECT 1",
            "select * from users where (a = 1);",
            "SELECT count(*), max(x) FROM t GROUP BY y",
            "SHOW DATABASES",
            "DESCRIBE FORMATTED tbl",
        ] {
            assert!(only_asks(query), "{query}");
        }
        for query in [
            "DROP TABLE t",
            "SELECT 1; DROP TABLE t",
            "SELECT * INTO x FROM y",
            "SELECT pg_read_file('/etc/passwd')",
            "SELECT writefile('x', 'y')",
            "SELECT \"writefile\"('x', 'y')",
            "SELECT main.writefile ('x')",
            "SELECT load_extension('x')",
            ".shell id",
            "\\! id",
            "SELECT 1 /*! INTO OUTFILE 'x' */",
            "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
            "EXPLAIN ANALYZE DELETE FROM t",
            "PRAGMA user_version = 1",
            "select 1\n!id",
            "SELECT * FROM t FOR UPDATE",
        ] {
            assert!(!only_asks(query), "{query}");
        }
    }
}
