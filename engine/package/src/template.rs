//! Chat templates: a conversation to the text of a prompt, as the model's makers wrote it.
//!
//! A template is code from a file, so it runs on fuel and into a bounded output, and sees neither
//! clock, files nor randomness: what it writes is a function of its arguments. It must never let a
//! client's words count as the template's own (see `marking`).
//!
//! The date comes in by name, as the argument `now` (`2026-11-29` or `2026-11-29T18:00:00`) beside
//! the template's own ones. Only then `strftime_now` is defined; without it, templates that ask
//! whether it is fall back to a date of their own, and templates that don't ask fail with an error
//! that says what to pass.

mod python;

use crate::error::PackageError;
use crate::marking::Marking;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Template instructions that one rendering may run; a long conversation needs under a million.
const FUEL: u64 = 20_000_000;

/// The longest prompt, in bytes, that a template may write.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// A package's chat template, compiled.
pub struct ChatTemplate {
    environment: Environment<'static>,
    sources: BTreeMap<String, String>,
    path: PathBuf,
    /// `bos_token` and the like, by name.
    special_tokens: BTreeMap<String, String>,
    marking: Arc<Marking>,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ChatTemplate {{ {:?} of {} }}",
            self.sources.keys(),
            self.path.display()
        )
    }
}

/// A rendered prompt, which still knows what the template wrote and what a client did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub(crate) marked: String,
    marking: Arc<RenderedMarking>,
}

/// What `Rendered` needs of its template, compared by what it says.
#[derive(Debug, Clone)]
struct RenderedMarking(Arc<Marking>);

impl PartialEq for RenderedMarking {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RenderedMarking {}

impl Rendered {
    /// The prompt as a person reads it. Tokenise with [`crate::Package::encode_chat`], never this
    /// text, in which a client's `</think>` looks like the template's.
    pub fn text(&self) -> String {
        self.marking.0.resolve(&self.marked).text
    }

    pub(crate) fn resolved(&self) -> crate::marking::Resolved {
        self.marking.0.resolve(&self.marked)
    }
}

impl ChatTemplate {
    /// Compiles templates by name (`default`, and `tool_use` where there is one for conversations
    /// with tools).
    pub(crate) fn new(
        path: &Path,
        sources: BTreeMap<String, String>,
        special_tokens: BTreeMap<String, String>,
        marking: Arc<Marking>,
    ) -> Result<ChatTemplate, PackageError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(python::write);
        environment.add_filter("tojson", python::to_json);
        environment.add_filter("string", |value: &Jinja| python::to_str(value));
        environment.add_function("raise_exception", raise_exception);
        for (name, source) in &sources {
            environment
                .add_template_owned(name.clone(), without_generation_tags(source))
                .map_err(|error| template_error(path, &Marking::default(), &error))?;
        }
        if sources.is_empty() {
            return Err(PackageError::Template {
                path: path.to_path_buf(),
                line: 0,
                message: "no template there, expected at least one".to_string(),
                refused: false,
            });
        }
        Ok(ChatTemplate {
            environment,
            sources,
            path: path.to_path_buf(),
            special_tokens,
            marking,
        })
    }

    /// The file that holds the template.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The source of the template that plain conversations use.
    pub fn source(&self) -> &str {
        let default = self
            .sources
            .get("default")
            .or_else(|| self.sources.values().next());
        default.map_or("", String::as_str)
    }

    /// The names of its templates; most packages have one, `default`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// Renders a conversation. `kwargs` are the template's own arguments (`enable_thinking`, ...),
    /// and `now`.
    ///
    /// Messages are in the shape of the chat API, except that a tool call's `arguments` should be
    /// an object. An error with `refused` set is the template's own objection to the conversation.
    pub fn render(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        kwargs: &Map<String, Value>,
        add_generation_prompt: bool,
    ) -> Result<Rendered, PackageError> {
        let mut context: BTreeMap<&str, Jinja> = BTreeMap::new();
        for (name, value) in kwargs {
            context.insert(name, self.escaped(value));
        }
        if let Some(now) = kwargs.get("now") {
            context.insert("strftime_now", self.strftime_now(now)?);
        }
        for (name, token) in &self.special_tokens {
            context.insert(name, Jinja::from(token.as_str()));
        }
        let list = |items: &[Value]| {
            items
                .iter()
                .map(|item| self.escaped(item))
                .collect::<Jinja>()
        };
        context.insert("messages", list(messages));
        context.insert("tools", tools.map_or(Jinja::from(()), list));
        context.insert("documents", Jinja::from(()));
        context.insert("add_generation_prompt", Jinja::from(add_generation_prompt));
        let with_tools = tools.is_some() && self.sources.contains_key("tool_use");
        let name = match with_tools {
            true => "tool_use",
            false if self.sources.contains_key("default") => "default",
            false => self.sources.keys().next().map_or("", String::as_str),
        };
        let error = |error: Error| template_error(&self.path, &self.marking, &error);
        let template = self.environment.get_template(name).map_err(error)?;
        let mut output = Bounded { bytes: Vec::new() };
        template
            .render_captured_to(&context, &mut output)
            .map_err(error)?;
        let marked = String::from_utf8(output.bytes).map_err(|error| PackageError::Template {
            path: self.path.clone(),
            line: 0,
            message: format!("the prompt isn't UTF-8: {error}"),
            refused: false,
        })?;
        Ok(Rendered {
            marked,
            marking: Arc::new(RenderedMarking(self.marking.clone())),
        })
    }

    /// A client's value for the template: every string and key of it escaped, keys in their order.
    fn escaped(&self, value: &Value) -> Jinja {
        match value {
            Value::Null => Jinja::from(()),
            Value::Bool(flag) => Jinja::from(*flag),
            Value::Number(number) => Jinja::from_serialize(number),
            Value::String(text) => Jinja::from(self.marking.escape(text)),
            Value::Array(items) => items.iter().map(|item| self.escaped(item)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| (self.marking.escape(key), self.escaped(value)))
                .collect(),
        }
    }

    fn strftime_now(&self, now: &Value) -> Result<Jinja, PackageError> {
        let Some(now) = now.as_str().and_then(python::DateTime::parse) else {
            return Err(PackageError::Template {
                path: self.path.clone(),
                line: 0,
                message: format!(
                    "now is {now}, expected a date like 2026-11-29 or 2026-11-29T18:00:00"
                ),
                refused: true,
            });
        };
        Ok(Jinja::from_function(move |format: &str| {
            now.format(format)
                .map_err(|message| Error::new(ErrorKind::InvalidOperation, message))
        }))
    }
}

/// Marks the errors that a template raises on purpose.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(message: String) -> Result<Jinja, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn template_error(path: &Path, marking: &Marking, error: &Error) -> PackageError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut line = error.line().unwrap_or(0);
    while let Some(cause) = source {
        if let Some(raised) = cause.downcast_ref::<Raised>() {
            let message = marking.resolve(&raised.0).text;
            return PackageError::Template {
                path: path.to_path_buf(),
                line,
                message,
                refused: true,
            };
        }
        if let Some(inner) = cause.downcast_ref::<Error>() {
            line = inner.line().unwrap_or(line);
        }
        source = cause.source();
    }
    let mut message = error.kind().to_string();
    if let Some(detail) = error.detail() {
        message = format!("{message}: {detail}");
    }
    if let Some(cause) = std::error::Error::source(error) {
        message = format!("{message}: {cause}");
    }
    if message.contains("strftime_now") {
        message = format!("{message}; pass the date as the template argument `now`");
    }
    let message = marking.resolve(&message).text;
    PackageError::Template {
        path: path.to_path_buf(),
        line,
        message,
        refused: false,
    }
}

/// An output that refuses to grow without bound.
struct Bounded {
    bytes: Vec<u8>,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_BYTES_MAX {
            let message = format!("the prompt is longer than {OUTPUT_BYTES_MAX} bytes");
            return Err(std::io::Error::other(message));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// `{% generation %}` marks, for training, what the assistant wrote; for rendering it is a block
/// that is always taken.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        // Looked for behind the opener: in `{%}` there is no end yet.
        let Some(length) = rest[begin + 2..].find("%}") else {
            break;
        };
        let inner = &rest[begin + 2..begin + 2 + length];
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replacement = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => word,
        };
        out.push_str(&rest[..begin + 2]);
        if replacement == word {
            out.push_str(inner);
        } else {
            out.push_str(&inner.replacen(word, &format!(" {replacement} "), 1));
        }
        out.push_str("%}");
        rest = &rest[begin + 2 + length + 2..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests;
