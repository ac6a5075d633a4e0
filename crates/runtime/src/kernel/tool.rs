//! What a tool is: a name, a schema, and a function that is handed its powers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;

use jsonschema::Validator;
use ringfence_policy::{Bytes, Timeout};
use schemars::JsonSchema;
use schemars::generate::Contract;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Call, ErrorKind, ToolError, schema};

/// A tool. One file in `tools/` holds one, and `tools::all` names it.
pub trait Tool {
    /// What callers name it by.
    const NAME: &'static str;
    /// What people read in a list.
    const TITLE: &'static str;
    /// What a model reads: what it does, what it gives back, what it cannot do.
    const DESCRIPTION: &'static str;
    /// What it may change.
    const EFFECTS: Effects;
    /// Who watches the deadline.
    const CLOCK: Clock = Clock::Kernel;
    /// What it is asked with. Members that are not named here are refused.
    type Arguments: DeserializeOwned + JsonSchema + Send;
    /// What it answers with beside text; `()` for nothing.
    type Output: Serialize + JsonSchema;

    /// Does the work.
    fn call(
        call: &Call<'_>,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Answer, ToolError>> + Send;
}

/// What a tool may change, as MCP's tool annotations say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// Nothing: it only looks.
    Reads,
    /// It adds or changes things that belong to the caller.
    Writes,
    /// It may destroy what was there.
    Destroys,
    /// It reaches the world outside.
    Reaches,
}

/// Who watches a tool's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The kernel, which drops the tool's work.
    Kernel,
    /// What the tool runs things with: it is given the kernel's deadline, and answers with what came of it.
    Runner,
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// As a model reads it.
    pub text: String,
    /// As a program reads it.
    pub structured: Option<Value>,
}

impl Answer {
    /// An answer that is text alone.
    pub fn text(text: String) -> Self {
        Self {
            text,
            structured: None,
        }
    }

    /// An answer that is a value, and the same as text.
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    pub fn value(value: &impl Serialize) -> Result<Self, ToolError> {
        let text = serde_json::to_string(value).map_err(unwritable)?;
        Self::both(text, value)
    }

    /// An answer that is a value, with other words for a model.
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    pub fn both(text: String, value: &impl Serialize) -> Result<Self, ToolError> {
        Ok(Self {
            text,
            structured: Some(serde_json::to_value(value).map_err(unwritable)?),
        })
    }

    /// The answer, if it is no longer than an answer may be; text is cut.
    ///
    /// What a tool passes on is limited where it is read. This catches what a tool adds to it.
    pub(super) fn bounded(mut self, limit: Bytes) -> Result<Self, ToolError> {
        // JSON writes a control character with six bytes; stdout, stderr and facts about them come together.
        let most = limit.0.saturating_mul(16).saturating_add(64 * 1024);
        let length = self.text.len() as u64;
        if self.structured.is_some() && length > most {
            return Err(ToolError::new(
                ErrorKind::LimitExceeded,
                format!("the answer has {length} bytes, which is more than {most}"),
                "ask for less at once",
            ));
        }
        if self.structured.is_none() && length > limit.0 {
            let end = self
                .text
                .floor_char_boundary(usize::try_from(limit.0).unwrap_or(usize::MAX));
            self.text.truncate(end);
            self.text.push_str("\n... (output truncated)");
        }
        Ok(self)
    }
}

fn unwritable(error: serde_json::Error) -> ToolError {
    ToolError::new(
        ErrorKind::Internal,
        format!("the answer cannot be written as JSON: {error}"),
        "report this as a defect",
    )
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Answer, ToolError>> + Send + 'a>>;

/// A tool as a value.
pub struct Definition {
    /// What callers name it by.
    pub name: &'static str,
    /// What people read in a list.
    pub title: &'static str,
    /// What a model reads.
    pub description: &'static str,
    /// What its arguments must look like (JSON Schema 2020-12).
    pub input_schema: Map<String, Value>,
    /// What the structured part of its answer looks like.
    pub output_schema: Option<Map<String, Value>>,
    /// What it may change.
    pub effects: Effects,
    pub(super) clock: Clock,
    validator: OnceLock<Validator>,
    run: for<'a> fn(&'a Call<'a>, Value) -> Running<'a>,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Definition {
    /// A tool as a value.
    pub(crate) fn of<T: Tool>() -> Self {
        let output = schema::of::<T::Output>(Contract::Serialize);
        let is_object = output.get("type").is_some_and(|kind| kind == "object");
        Self {
            name: T::NAME,
            title: T::TITLE,
            description: T::DESCRIPTION,
            input_schema: schema::of::<T::Arguments>(Contract::Deserialize),
            output_schema: is_object.then_some(output),
            effects: T::EFFECTS,
            clock: T::CLOCK,
            validator: OnceLock::new(),
            run: |call, arguments| {
                Box::pin(async move {
                    let arguments = T::Arguments::deserialize(arguments).map_err(|error| {
                        ToolError::new(
                            ErrorKind::InvalidArguments,
                            format!("the arguments of `{}` are not right: {error}", T::NAME),
                            "correct the arguments; the tool's schema says what each takes",
                        )
                    })?;
                    T::call(call, arguments).await
                })
            },
        }
    }

    /// That arguments fit the schema.
    pub(crate) fn check(&self, arguments: &Value) -> Result<(), ToolError> {
        let validator = self
            .validator
            .get_or_init(|| schema::validator(&self.input_schema));
        schema::check(self.name, &self.input_schema, validator, arguments)
    }

    /// Its arguments as people read them, those that it needs first: `code, timeout?`.
    pub fn members(&self) -> String {
        schema::members(&self.input_schema)
    }

    /// The timeout that the caller asks for: every tool that takes one calls it so.
    pub(super) fn asked_timeout(&self, arguments: &Value) -> Result<Option<Timeout>, ToolError> {
        let asked = arguments.get("timeout").filter(|asked| !asked.is_null());
        asked.map(Timeout::deserialize).transpose().map_err(|error| {
            ToolError::new(
                ErrorKind::InvalidArguments,
                format!("`/timeout` of `{}`: {error}", self.name),
                "write seconds as a number, or a time with its unit such as \"500ms\"",
            )
        })
    }

    pub(super) fn call<'a>(&self, call: &'a Call<'a>, arguments: Value) -> Running<'a> {
        (self.run)(call, arguments)
    }
}
