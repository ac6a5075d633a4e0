//! Defines a tool: a name, schemas and a function.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{LazyLock, OnceLock};

use jsonschema::Validator;
use ringfence_policy::{AskedTimeout, Bytes, Timeout};
use schemars::JsonSchema;
use schemars::generate::Contract;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Call, ErrorKind, Parts, ToolError, schema};

/// A tool. Each file in `tools/` defines one, and `tools::all` lists it.
pub trait Tool {
    const NAME: &'static str;
    const TITLE: &'static str;
    /// Description for a model: its purpose, result and limitations.
    const DESCRIPTION: &'static str;
    /// The same for clients of the server's listeners, who have no tool of files and no `/output` that lasts.
    const REMOTE_DESCRIPTION: &'static str = Self::DESCRIPTION;
    const EFFECTS: Effects;
    /// Set for a tool that acts on this machine outside the fence. The server's clients get none of these.
    const ON_HOST: bool;
    /// The part that ends it at its deadline: `Runner` for tools that run programs.
    const CLOCK: Clock = Clock::Toolbox;
    /// Arguments. Unknown members are rejected.
    type Arguments: DeserializeOwned + JsonSchema + Send;
    /// Structured result; `()` for text only.
    type Output: Serialize + JsonSchema;

    /// Returns `false` if a toolbox lacks what the tool needs: it is not offered then.
    fn is_offered(_parts: &Parts) -> bool {
        true
    }

    fn call(
        call: &Call<'_>,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Answer, ToolError>> + Send;
}

/// Side effects of a tool, for MCP's tool annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// None: read-only.
    Reads,
    /// Adds or changes data of the caller.
    Writes,
    /// May destroy data.
    Destroys,
    /// Reaches external hosts.
    Reaches,
}

/// The part that ends a tool at its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// [`Toolbox`](super::Toolbox), which drops the tool's future.
    Toolbox,
    /// The tool's runner, which gets the deadline and reports the timeout in its result.
    Runner,
}

/// Result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Text: JSON where the result is a value and nothing else.
    pub text: String,
    /// Value for a program.
    pub structured: Option<Value>,
    /// Presentation for a model, where that is not the text.
    pub view: Option<ModelView>,
}

/// Result of a tool as a model reads it: short, without the facts that only programs need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelView {
    pub text: String,
    pub pictures: Vec<Picture>,
}

/// A picture that a program made: a guest's bytes, of which no more than the first ones were looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// `image/png` or `image/jpeg`.
    pub mime: &'static str,
    /// Data in base64 (RFC 4648, section 4).
    pub base64: String,
}

impl Answer {
    pub fn text(text: String) -> Self {
        Self {
            text,
            structured: None,
            view: None,
        }
    }

    /// Creates a structured result with the same JSON as text.
    ///
    /// # Errors
    /// If the value cannot be serialized as JSON.
    pub fn value(value: &impl Serialize) -> Result<Self, ToolError> {
        let text = serde_json::to_string(value).map_err(unwritable)?;
        Self::both(text, value)
    }

    /// Creates a structured result with a different text.
    ///
    /// # Errors
    /// If the value cannot be serialized as JSON.
    pub fn both(text: String, value: &impl Serialize) -> Result<Self, ToolError> {
        Ok(Self {
            text,
            structured: Some(serde_json::to_value(value).map_err(unwritable)?),
            view: None,
        })
    }

    /// Adds a presentation for a model.
    #[must_use]
    pub fn seen_as(mut self, text: String, pictures: Vec<Picture>) -> Self {
        self.view = Some(ModelView { text, pictures });
        self
    }

    /// Enforces the maximum size of a result; truncates text.
    ///
    /// Output of programs, files and hosts is limited where it is read. This limits the rest.
    pub(super) fn bounded(mut self, limit: Bytes) -> Result<Self, ToolError> {
        // JSON escapes a control character as six bytes, and stdout, stderr and metadata add up.
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

/// A type-erased tool.
pub struct Definition {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub remote_description: &'static str,
    /// Schema of the arguments (JSON Schema 2020-12). Both are derived at their first use: a process that calls
    /// one tool needs no others.
    pub input_schema: LazyLock<Map<String, Value>>,
    /// Schema of the structured result.
    pub output_schema: LazyLock<Option<Map<String, Value>>>,
    pub effects: Effects,
    pub(crate) on_host: bool,
    pub(super) clock: Clock,
    pub(super) is_offered: fn(&Parts) -> bool,
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
    /// Erases the type of a tool.
    pub(crate) fn of<T: Tool>() -> Self {
        Self {
            name: T::NAME,
            title: T::TITLE,
            description: T::DESCRIPTION,
            remote_description: T::REMOTE_DESCRIPTION,
            input_schema: LazyLock::new(|| schema::of::<T::Arguments>(Contract::Deserialize)),
            output_schema: LazyLock::new(|| {
                let output = schema::of::<T::Output>(Contract::Serialize);
                let is_object = output.get("type").is_some_and(|kind| kind == "object");
                is_object.then_some(output)
            }),
            effects: T::EFFECTS,
            on_host: T::ON_HOST,
            clock: T::CLOCK,
            is_offered: T::is_offered,
            validator: OnceLock::new(),
            run: |call, arguments| {
                Box::pin(async move {
                    let arguments = T::Arguments::deserialize(arguments).map_err(|error| {
                        ToolError::new(
                            ErrorKind::InvalidArguments,
                            format!("{}: {error}", schema::wrong_arguments(T::NAME)),
                            schema::ADVICE,
                        )
                    })?;
                    T::call(call, arguments).await
                })
            },
        }
    }

    /// Validates arguments against the schema.
    pub(crate) fn check(&self, arguments: &Value) -> Result<(), ToolError> {
        if schema::accepts(&self.input_schema, arguments) {
            return Ok(());
        }
        let validator = self
            .validator
            .get_or_init(|| schema::validator(&self.input_schema));
        schema::check(self.name, &self.input_schema, validator, arguments)
    }

    /// Renders the arguments, required ones first: `code, timeout?`.
    pub fn members(&self) -> String {
        schema::members(&self.input_schema)
    }

    /// Returns the requested timeout: the argument `timeout` of every tool that takes one.
    pub(super) fn asked_timeout(&self, arguments: &Value) -> Result<Option<Timeout>, ToolError> {
        let asked = arguments.get("timeout").filter(|asked| !asked.is_null());
        let read = |asked| AskedTimeout::deserialize(asked).map(|AskedTimeout(timeout)| timeout);
        asked.map(read).transpose().map_err(|error: serde_json::Error| {
            ToolError::new(
                ErrorKind::InvalidArguments,
                format!("`/timeout` of `{}`: {error}", self.name),
                "write seconds as a number above 0, or a time with its unit such as \"500ms\"",
            )
        })
    }

    pub(super) fn call<'a>(&self, call: &'a Call<'a>, arguments: Value) -> Running<'a> {
        (self.run)(call, arguments)
    }
}
