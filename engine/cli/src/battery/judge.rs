//! What an answer is: a call, a malformed one by its kind, text, a starved one; and what stands in it that
//! should not. It must never count an answer under two of the first, nor under none.

use super::{
    conformance,
    markup::{self, CallInText},
    plan::{Request, Tool},
    repetition::{self, Repetition},
    reply::{Call, Finish, Reply},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Names of outcomes.
macro_rules! outcomes {
    ($($outcome:ident = $name:literal, $what:literal;)+) => {
        /// What can be said of an answer. The names before a dot are groups.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each is described by its text")]
        pub enum Outcome { $($outcome,)+ }

        impl Outcome {
            /// All of them, in the order of reports.
            pub const ALL: &[Outcome] = &[$(Outcome::$outcome,)+];

            /// As it is written in results, reports and conditions.
            pub fn name(self) -> &'static str {
                match self { $(Outcome::$outcome => $name,)+ }
            }

            /// In words.
            pub fn what(self) -> &'static str {
                match self { $(Outcome::$outcome => $what,)+ }
            }
        }
    };
}

outcomes! {
    Call = "call", "calls, all of them well-formed";
    Text = "text", "text and no call";
    CutCall = "cut_call", "a call that the token limit cut off";
    Starved = "starved", "nothing but reasoning when the token limit came";
    Empty = "empty", "nothing at all, and no token limit";
    UnclosedMarkup = "malformed.unclosed_markup", "an opening tag in the text, without its end";
    MarkupInText = "malformed.markup_in_text", "a whole call in the text, that nobody read";
    NoJson = "malformed.no_json", "arguments that are no JSON";
    Schema = "malformed.schema", "arguments that are not of the tool's schema";
    UnknownTool = "malformed.unknown_tool", "a tool that was not offered";
    MissingName = "malformed.missing_name", "a call without a name";
    MissingId = "malformed.missing_id", "a call without an id";
    MissingArguments = "malformed.missing_arguments", "arguments that are missing, or no text";
    NotCalled = "malformed.not_called", "no call where one was promised or asked for";
    Refused = "malformed.refused", "a call that the server itself could not read";
    SpecialToken = "markup.special_token", "a special token spelled in the answer";
    Tag = "markup.tag", "a tag of a format for calls or reasoning in the answer";
    Line = "repetition.line", "the same line over and over";
    Tail = "repetition.tail", "an end that repeats the same piece";
}

impl Outcome {
    /// The outcome of this name.
    pub fn of_name(name: &str) -> Option<Outcome> {
        let known = Outcome::ALL.iter().copied();
        { known }.find(|outcome| outcome.name() == name)
    }

    /// What comes before the dot.
    pub fn group(self) -> Option<&'static str> {
        self.name().split_once('.').map(|(group, _)| group)
    }
}

/// What is said of an answer, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Outcomes.
    pub outcomes: BTreeSet<Outcome>,
    /// In words, for those that are no matter of course.
    pub details: Vec<String>,
}

impl Judged {
    fn add(&mut self, outcome: Outcome, detail: impl Into<String>) {
        self.outcomes.insert(outcome);
        let detail = detail.into();
        if !detail.is_empty() {
            self.details.push(format!("{}: {detail}", outcome.name()));
        }
    }
}

/// Judges an answer to a request.
pub fn judge(request: &Request, reply: &Reply) -> Judged {
    let mut judged = Judged::default();
    calls(request, reply, &mut judged);
    if judged.outcomes.is_empty() {
        let outcome = what_is_left(reply);
        judged.outcomes.insert(outcome);
    }
    marks(reply, &mut judged);
    judged
}

/// Whatever has to do with calls. Nothing, where none is there and none is missing.
fn calls(request: &Request, reply: &Reply, judged: &mut Judged) {
    if let Some((_, what)) = &reply.refused {
        judged.add(Outcome::Refused, what.clone());
        return;
    }
    let mut malformed = Judged::default();
    match markup::call_in_text(&reply.content) {
        Some(CallInText::Unclosed(tag)) if reply.finish == Finish::Length => {
            judged.add(
                Outcome::CutCall,
                format!("{tag} without its end at the token limit"),
            );
            return;
        }
        Some(CallInText::Unclosed(tag)) => malformed.add(Outcome::UnclosedMarkup, tag),
        Some(CallInText::Whole(tag)) => malformed.add(Outcome::MarkupInText, tag),
        None => {}
    }
    let last = reply.calls.len().saturating_sub(1);
    for (idx, made) in reply.calls.iter().enumerate() {
        let is_cut = reply.finish == Finish::Length && idx == last;
        if is_cut && arguments(made).is_none() && malformed.outcomes.is_empty() {
            judged.add(Outcome::CutCall, format!("call {idx} at the token limit"));
            return;
        }
        call(&request.tools, idx, made, &mut malformed);
    }
    let is_asked = request.must_call() && reply.finish != Finish::Length;
    if reply.calls.is_empty() && malformed.outcomes.is_empty() {
        if reply.finish == Finish::Calls {
            malformed.add(Outcome::NotCalled, "it ended with calls, and there is none");
        } else if is_asked {
            malformed.add(Outcome::NotCalled, "tool_choice asks for a call");
        }
    } else if malformed.outcomes.is_empty() {
        judged.add(Outcome::Call, "");
    }
    judged.outcomes.extend(malformed.outcomes);
    judged.details.extend(malformed.details);
}

/// The arguments of a call, if they are JSON.
fn arguments(call: &Call) -> Option<Value> {
    serde_json::from_str(call.arguments.as_deref()?).ok()
}

fn call(tools: &[Tool], idx: usize, call: &Call, malformed: &mut Judged) {
    let is_there = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    if !is_there(&call.id) {
        malformed.add(Outcome::MissingId, format!("call {idx}"));
    }
    let tool = tools
        .iter()
        .find(|tool| Some(&tool.name) == call.name.as_ref());
    match &call.name {
        Some(name) if !name.is_empty() => {
            if tool.is_none() {
                malformed.add(Outcome::UnknownTool, format!("call {idx}: {name:?}"));
            }
        }
        _ => malformed.add(Outcome::MissingName, format!("call {idx}")),
    }
    let Some(text) = &call.arguments else {
        malformed.add(Outcome::MissingArguments, format!("call {idx}"));
        return;
    };
    match (serde_json::from_str::<Value>(text), tool) {
        (Err(error), _) => {
            malformed.add(Outcome::NoJson, format!("call {idx}: {error}: {text}"));
        }
        (Ok(value), tool) => {
            // Arguments are an object whatever the tool is.
            let misfit = match (value.is_object(), tool) {
                (false, _) => Some(format!("{value} is no object")),
                (true, Some(tool)) => conformance::misfit(&tool.schema, &value),
                (true, None) => None,
            };
            if let Some(misfit) = misfit {
                malformed.add(Outcome::Schema, format!("call {idx}: {misfit}"));
            }
        }
    }
}

/// An answer in which no call is, and none is missing.
fn what_is_left(reply: &Reply) -> Outcome {
    match (reply.content.trim().is_empty(), &reply.finish) {
        (false, _) => Outcome::Text,
        (true, Finish::Length) => Outcome::Starved,
        (true, _) => Outcome::Empty,
    }
}

/// What stands in an answer that should not, whatever else it is.
fn marks(reply: &Reply, judged: &mut Judged) {
    let arguments = reply
        .calls
        .iter()
        .filter_map(|call| call.arguments.as_deref());
    let names = reply.calls.iter().filter_map(|call| call.name.as_deref());
    let texts = [
        ("content", &*reply.content),
        ("reasoning", &*reply.reasoning),
    ];
    let in_calls = arguments.chain(names).map(|text| ("a call", text));
    for (place, text) in texts.into_iter().chain(in_calls) {
        for token in markup::special_tokens(text) {
            judged.add(Outcome::SpecialToken, format!("{token} in {place}"));
        }
        match repetition::find(text) {
            Some(Repetition::Line(line, num)) => {
                judged.add(Outcome::Line, format!("{num} times {line:?} in {place}"));
            }
            Some(Repetition::Tail(piece, num)) => {
                judged.add(Outcome::Tail, format!("{num} times {piece:?} ends {place}"));
            }
            None => {}
        }
    }
    for (place, text) in texts {
        for tag in markup::tags(text) {
            judged.add(Outcome::Tag, format!("{tag} in {place}"));
        }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
