//! The functions of tools, and the beginnings of the programs that have them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::protocol::Tool;
use crate::error::Error;
use crate::language::Language;
use crate::session::shown;

/// Tools of one program.
const MAX_TOOLS: usize = 100;

const BRIDGE: &str = include_str!("../../../exec/python/bridge.py");
const PYTHON: &str = include_str!("../../programs/tools.py");
const BASH: &str = include_str!("../../programs/tools.sh");

/// A tool with the name of its function.
pub(super) struct ToolFunction {
    pub(super) tool: Tool,
    function: String,
}

impl ToolFunction {
    /// Names the functions of tools, as the original service does.
    pub(super) fn all(tools: Vec<Tool>, language: Language) -> Result<Vec<Self>, Error> {
        if !matches!(language, Language::Python | Language::Bash) {
            return Err(Error::Invalid(
                "programs with tools are in python or bash".to_owned(),
            ));
        }
        if tools.is_empty() || tools.len() > MAX_TOOLS {
            return Err(Error::Invalid(format!(
                "expected 1 to {MAX_TOOLS} tools, got {}",
                tools.len()
            )));
        }
        let mut functions = BTreeSet::new();
        let mut all = Vec::new();
        for tool in tools {
            let function = function(&tool.name, language);
            if function.is_empty() || !functions.insert(function.clone()) {
                return Err(Error::Invalid(format!(
                    "the tool `{}` needs a name whose letters, digits and underscores no other one has",
                    shown(&tool.name)
                )));
            }
            all.push(Self { tool, function });
        }
        Ok(all)
    }

    pub(super) fn entry(&self) -> Value {
        json!({
            "name": self.tool.name,
            "function": self.function,
            "description": self.tool.description,
            "parameters": self.tool.parameters,
        })
    }
}

/// Words that are no names of functions.
const PYTHON_WORDS: &str = " False None True and as assert async await break class continue def del elif else except finally for from global if \
                            import in is lambda nonlocal not or pass raise return try while with yield ";
const BASH_WORDS: &str =
    " if then else elif fi case esac for select while until do done in function time coproc ";

fn function(name: &str, language: Language) -> String {
    let words = match language {
        Language::Bash => BASH_WORDS,
        _ => PYTHON_WORDS,
    };
    let underscored = name.chars().map(|character| match character {
        '-' => '_',
        '.' if language == Language::Bash => '_',
        space if space.is_whitespace() => '_',
        other => other,
    });
    let mut function: String = underscored
        .filter(|character| character.is_ascii_alphanumeric() || *character == '_')
        .collect();
    if function.starts_with(|first: char| first.is_ascii_digit()) {
        function.insert(0, '_');
    }
    if !function.is_empty() && words.contains(&format!(" {function} ")) {
        function.push_str("_tool");
    }
    function
}

/// Returns a program that runs one with tools.
pub(super) fn python() -> String {
    format!("import posix\n{BRIDGE}\n{PYTHON}")
}

/// Returns the beginning of a program in bash, with the functions of its tools, and the program behind it.
pub(super) fn bash(tools: &[ToolFunction]) -> String {
    let mut text = BASH.to_owned();
    for ToolFunction { tool, function } in tools {
        // JSON in single quotes.
        let name = json!(tool.name).to_string().replace('\'', r"'\''");
        text.push_str(&format!("{function}() {{ ringfence_call '{name}' \"$@\"; }}\n"));
    }
    text.push_str(". /mnt/data/.main.sh\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_names_that_clients_expect() {
        let check = |name: &str, language, expected: &str| assert_eq!(function(name, language), expected);
        check("get-weather", Language::Python, "get_weather");
        check("a b.c", Language::Python, "a_bc");
        check("a b.c", Language::Bash, "a_b_c");
        check("2nd", Language::Python, "_2nd");
        check("import", Language::Python, "import_tool");
        check("import", Language::Bash, "import");
        check("done", Language::Bash, "done_tool");
        check("$(id)", Language::Bash, "id");
        check("é", Language::Python, "");
    }

    #[test]
    fn tools_with_one_name_are_refused() {
        let tool = |name: &str| Tool {
            name: name.to_owned(),
            description: None,
            parameters: Value::Null,
        };
        assert!(ToolFunction::all(vec![tool("a-b"), tool("a_b")], Language::Python).is_err());
        assert!(ToolFunction::all(Vec::new(), Language::Python).is_err());
        assert!(ToolFunction::all(vec![tool("a")], Language::Javascript).is_err());
        let named = ToolFunction::all(vec![tool("it's")], Language::Bash).unwrap();
        assert!(bash(&named).contains(r#"its() { ringfence_call '"it'\''s"' "$@"; }"#));
    }
}
