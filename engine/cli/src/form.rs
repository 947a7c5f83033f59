//! Flags that hold an answer to a form. They go the way of the server's own fields, so that the command line
//! and the API hold and refuse the same. It must never build a constraint of its own.

use crate::{
    dialogue::{Dialogue, LimitArgs},
    exit::Failure,
};
use clap::Args;
use lockstep_package::Package;
use lockstep_server::{ReadRequest, RequestError, RequestReader, ServerConfig};
use lockstep_step::{Matcher, TokenId};
use serde_json::{Map, Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What an answer must be.
#[derive(Args, Clone, Debug, Default)]
pub struct FormArgs {
    /// The answer is JSON under the schema in this file.
    #[arg(long, value_name = "FILE.json", group = "form")]
    json_schema: Option<PathBuf>,
    /// The answer matches this regular expression as a whole.
    #[arg(long, value_name = "REGEX", group = "form")]
    regex: Option<String>,
    /// The answer is this text; repeated, it is one of several.
    #[arg(long, value_name = "TEXT", group = "form")]
    choice: Vec<String>,
    /// The answer is of the Lark grammar in this file.
    #[arg(long, value_name = "FILE.lark", group = "form")]
    grammar: Option<PathBuf>,
}

impl FormArgs {
    /// The flags as the API's field for them, if any is given.
    fn field(&self) -> Result<Option<Value>, Failure> {
        Ok(match self {
            FormArgs {
                json_schema: Some(path),
                ..
            } => {
                let schema: Value = serde_json::from_str(&read(path)?).map_err(|error| {
                    let next = "expected a JSON schema, such as {\"type\": \"object\"}";
                    Failure::input(format!("{}: {error}", path.display()), next)
                })?;
                Some(json!({"json": schema}))
            }
            FormArgs {
                regex: Some(regex), ..
            } => Some(json!({"regex": regex})),
            FormArgs {
                grammar: Some(path),
                ..
            } => Some(json!({"grammar": read(path)?})),
            FormArgs { choice, .. } if !choice.is_empty() => Some(json!({"choice": choice})),
            _ => None,
        })
    }
}

/// Reads a text file.
///
/// # Errors
/// If it can't be read.
pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::input(format!("{}: {error}", path.display()), ""))
}

/// What makes the matchers of a command's answers.
pub struct Form {
    reader: RequestReader,
    field: Option<Value>,
}

impl Form {
    /// Reads the flags. None if they ask for nothing, and no tool of the conversation is strict.
    ///
    /// # Errors
    /// A file that can't be read.
    pub fn new(
        args: &FormArgs,
        package: &Arc<Package>,
        dialogue: Option<&Dialogue>,
    ) -> Result<Option<Form>, Failure> {
        let field = args.field()?;
        if field.is_none() && !dialogue.is_some_and(Dialogue::has_strict_tools) {
            return Ok(None);
        }
        let config = ServerConfig::new(package.name.clone());
        Ok(Some(Form {
            reader: RequestReader::new(config, package.clone()),
            field,
        }))
    }

    /// The matcher of a conversation's next answer.
    ///
    /// # Errors
    /// A constraint that can't be held.
    pub fn of_chat(
        &self,
        dialogue: &Dialogue,
        limits: &LimitArgs,
    ) -> Result<Option<Box<dyn Matcher>>, Failure> {
        let read = self.reader.chat(&self.body(dialogue.body(), limits));
        self.matcher(read)
    }

    /// The matcher of a plain prompt's continuation.
    ///
    /// # Errors
    /// A constraint that can't be held.
    pub fn of_prompt(
        &self,
        prompt: &[TokenId],
        limits: &LimitArgs,
    ) -> Result<Option<Box<dyn Matcher>>, Failure> {
        let mut body = Map::new();
        body.insert("prompt".to_owned(), json!(prompt));
        let read = self.reader.completion(&self.body(body, limits));
        self.matcher(read)
    }

    fn body(&self, mut body: Map<String, Value>, limits: &LimitArgs) -> Value {
        if let Some(field) = &self.field {
            body.insert("structured_outputs".to_owned(), field.clone());
        }
        body.insert("ignore_eos".to_owned(), json!(limits.ignore_eos));
        Value::Object(body)
    }

    fn matcher(
        &self,
        read: Result<ReadRequest, RequestError>,
    ) -> Result<Option<Box<dyn Matcher>>, Failure> {
        let matcher = read.and_then(|read| self.reader.matcher(&read));
        let matcher = matcher.map_err(|error| {
            let next = "the flags are read as structured_outputs, see docs/PROTOCOL.md";
            Failure::input(error, next)
        })?;
        Ok(matcher.map(|matcher| Box::new(matcher) as Box<dyn Matcher>))
    }
}
