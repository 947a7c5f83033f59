//! Builds a call's arguments object from keys and raw values, typed by the tool's schema.
//! It must never emit a value before the value is certain, nor one that no declared type fits.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::call::Setting;
use crate::event::{Delivery, Sink, TagErrorKind};
use crate::json;
use crate::schema::{Parameters, ToolSet};
use crate::types::{Admits, Dialect};

/// A value that cannot be read.
pub(crate) struct BadValue {
    /// What is wrong with it.
    pub(crate) kind: TagErrorKind,
    /// Where in the output its raw text starts.
    pub(crate) offset: usize,
    pub(crate) expected: String,
}

/// One argument whose JSON text is not emitted yet.
struct Entry {
    key: String,
    raw: String,
    offset: usize,
    /// The value as JSON; `None` while its type waits for the other arguments.
    json: Option<String>,
}

/// The arguments of one call while they arrive. Entries stay here for one of two reasons: the
/// call is delivered whole, or a union at the root of the schema lets later arguments decide on
/// the type of earlier ones.
pub(crate) struct Arguments {
    tools: Arc<ToolSet>,
    name: String,
    index: u32,
    delivery: Delivery,
    dialect: Dialect,
    entries: Vec<Entry>,
    /// Raw values of arguments that went out already, kept where they may choose a branch.
    sent: Vec<(String, String)>,
    /// Whether an entry waits for its type, so that all after it wait as well.
    waiting: bool,
    /// Whether the current value is a string that goes out piece by piece.
    streaming: bool,
    opened: bool,
    /// The text of the arguments, where it waits for the call's end.
    held: String,
}

impl Arguments {
    pub(crate) fn new(name: &str, dialect: Dialect, setting: &Setting<'_, '_>) -> Self {
        Arguments {
            tools: setting.tools.clone(),
            name: name.into(),
            index: setting.index,
            delivery: setting.delivery,
            dialect,
            entries: Vec::new(),
            sent: Vec::new(),
            waiting: false,
            streaming: false,
            opened: false,
            held: String::new(),
        }
    }

    /// The call starts.
    pub(crate) fn begin(&self, sink: &mut Sink<'_>) {
        if self.delivery == Delivery::Eager {
            sink.begin(self.index, &self.name);
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn declares(&self, key: &str) -> bool {
        self.parameters()
            .is_some_and(|parameters| parameters.declares(key))
    }

    fn parameters(&self) -> Option<&Parameters> {
        self.tools.parameters(&self.name)
    }

    /// A value of this parameter starts.
    pub(crate) fn begin_value(&mut self, key: &str, sink: &mut Sink<'_>) {
        let is_text = || match self.parameters() {
            Some(parameters) => {
                !parameters.is_branching(key)
                    && parameters
                        .admits(key, &BTreeMap::new())
                        .is_text(self.dialect)
            }
            None => Admits::Unknown.is_text(self.dialect),
        };
        self.streaming = self.delivery == Delivery::Eager && !self.waiting && is_text();
        if self.streaming {
            let mut text = self.opening(key);
            text.push('"');
            sink.arguments(self.index, text);
        }
    }

    /// Text that certainly belongs to the current value.
    pub(crate) fn value_text(&mut self, text: &str, sink: &mut Sink<'_>) {
        if self.streaming {
            let mut escaped = String::new();
            json::write_escaped(text, &mut escaped);
            sink.arguments(self.index, escaped);
        }
    }

    /// The current value is complete: `raw` is all of its text, which starts at `offset`.
    pub(crate) fn end_value(
        &mut self,
        key: &str,
        raw: &str,
        offset: usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), BadValue> {
        let parameters = self.tools.parameters(&self.name);
        let branching = parameters.is_some_and(|parameters| parameters.is_branching(key));
        let chooses = parameters.is_some_and(Parameters::has_branching);
        let eager = self.delivery == Delivery::Eager;
        if self.streaming {
            self.streaming = false;
            sink.arguments(self.index, "\"".into());
            if chooses {
                self.sent.push((key.into(), raw.into()));
            }
            return Ok(());
        }
        let json = if branching {
            None
        } else {
            Some(self.read(key, raw, offset, &BTreeMap::new())?)
        };
        self.waiting |= eager && branching;
        match json {
            Some(json) if eager && !self.waiting => {
                let mut text = self.opening(key);
                text.push_str(&json);
                sink.arguments(self.index, text);
                if chooses {
                    self.sent.push((key.into(), raw.into()));
                }
            }
            json => {
                let raw = if chooses { raw.into() } else { String::new() };
                self.entries.push(Entry {
                    key: key.into(),
                    raw,
                    offset,
                    json,
                });
            }
        }
        Ok(())
    }

    /// All arguments are there: their text is whole.
    pub(crate) fn close(&mut self, sink: &mut Sink<'_>) -> Result<(), BadValue> {
        let rest = self.rest()?;
        match self.delivery {
            Delivery::Eager => sink.arguments(self.index, rest),
            Delivery::Whole => self.held = rest,
        }
        Ok(())
    }

    /// The call is whole.
    pub(crate) fn end(&mut self, sink: &mut Sink<'_>) {
        if self.delivery == Delivery::Whole {
            sink.begin(self.index, &self.name);
            sink.arguments(self.index, core::mem::take(&mut self.held));
        }
        sink.end(self.index);
    }

    /// What has been waiting, and the end of the object.
    fn rest(&mut self) -> Result<String, BadValue> {
        let entries = core::mem::take(&mut self.entries);
        let sent = core::mem::take(&mut self.sent);
        let mut siblings: BTreeMap<&str, &str> = BTreeMap::new();
        siblings.extend(sent.iter().map(|(key, raw)| (key.as_str(), raw.as_str())));
        siblings.extend(
            entries
                .iter()
                .map(|entry| (entry.key.as_str(), entry.raw.as_str())),
        );

        // Of a repeated key the last value stands, at the place of the first.
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut members: Vec<(&str, String)> = Vec::new();
        for entry in &entries {
            let json = match &entry.json {
                Some(json) => json.clone(),
                None => self.read(&entry.key, &entry.raw, entry.offset, &siblings)?,
            };
            match places.get(entry.key.as_str()) {
                Some(&place) => members[place].1 = json,
                None => {
                    places.insert(&entry.key, members.len());
                    members.push((&entry.key, json));
                }
            }
        }
        let mut text = String::new();
        for (key, json) in &members {
            text.push_str(&self.opening(key));
            text.push_str(json);
        }
        text.push_str(if self.opened { "}" } else { "{}" });
        Ok(text)
    }

    /// The text before a value: brace or comma, key, colon.
    fn opening(&mut self, key: &str) -> String {
        let mut text = String::from(if self.opened { "," } else { "{" });
        self.opened = true;
        json::write_string(key, &mut text);
        text.push(':');
        text
    }

    fn read(
        &self,
        key: &str,
        raw: &str,
        offset: usize,
        siblings: &BTreeMap<&str, &str>,
    ) -> Result<String, BadValue> {
        let admits = match self.parameters() {
            Some(parameters) => parameters.admits(key, siblings),
            None => Admits::Unknown,
        };
        match admits.read(raw, self.dialect) {
            Some(value) => {
                let mut json = String::new();
                value.write(&mut json);
                Ok(json)
            }
            None => {
                let expected = alloc::format!("{} for parameter `{key}`", admits.describe());
                Err(BadValue {
                    kind: TagErrorKind::BadValue,
                    offset,
                    expected,
                })
            }
        }
    }
}
