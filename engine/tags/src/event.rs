//! What a parser says: events in order, and the errors that end it.
//! Nothing here may depend on how the text was cut into pieces.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What a parser emits, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagEvent {
    /// Text of the reasoning channel, exactly as it stood.
    Reasoning(String),
    /// Text of the answer, exactly as it stood.
    Content(String),
    /// A call of a declared tool starts.
    CallBegin {
        /// Number of the call within this output, from 0.
        index: u32,
        /// The declared name.
        name: String,
    },
    /// The next piece of a call's arguments: all pieces together are the text of a JSON object.
    CallArguments {
        /// The call this belongs to.
        index: u32,
        /// A piece of JSON text, cut between any two characters.
        fragment: String,
    },
    /// The call is complete.
    CallEnd {
        /// The call that ended.
        index: u32,
    },
}

/// When a call's events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The beginning as soon as the name is certain, arguments piece by piece when certain.
    /// A call that fails or is cut off after its beginning never gets its end.
    Eager,
    /// A call's events come together, once it has parsed.
    Whole,
}

/// How the model's output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model stopped by itself.
    Eos,
    /// The token budget ran out.
    Length,
}

/// What a finished parse leaves to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How many calls were completed.
    pub num_calls: u32,
    /// The markup of a call that the token budget cut off.
    pub dropped_call: Option<String>,
}

/// Why a call cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagErrorKind {
    /// The model stopped by itself inside a call.
    UnterminatedToolCall,
    /// The tags of a call do not follow the format.
    MalformedCall,
    /// The JSON body of a call, or a value flagged as JSON, is not JSON.
    MalformedJson,
    /// A value cannot be read as any type its parameter declares.
    BadValue,
    /// The called tool was not offered.
    UnknownTool,
    /// The arguments are JSON, but no object.
    ArgumentsNotObject,
    /// A parameter is given twice in a format that refuses this.
    DuplicateParameter,
    /// The id that carries the tool's name is not of the format's shape.
    BadCallId,
    /// The header of a message is none that the format knows.
    BadMessageHeader,
}

impl TagErrorKind {
    /// All of them.
    pub const ALL: [TagErrorKind; 9] = [
        TagErrorKind::UnterminatedToolCall,
        TagErrorKind::MalformedCall,
        TagErrorKind::MalformedJson,
        TagErrorKind::BadValue,
        TagErrorKind::UnknownTool,
        TagErrorKind::ArgumentsNotObject,
        TagErrorKind::DuplicateParameter,
        TagErrorKind::BadCallId,
        TagErrorKind::BadMessageHeader,
    ];

    /// The name clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            TagErrorKind::UnterminatedToolCall => "unterminated_tool_call",
            TagErrorKind::MalformedCall => "malformed_call",
            TagErrorKind::MalformedJson => "malformed_json",
            TagErrorKind::BadValue => "bad_value",
            TagErrorKind::UnknownTool => "unknown_tool",
            TagErrorKind::ArgumentsNotObject => "arguments_not_object",
            TagErrorKind::DuplicateParameter => "duplicate_parameter",
            TagErrorKind::BadCallId => "bad_call_id",
            TagErrorKind::BadMessageHeader => "bad_message_header",
        }
    }
}

impl fmt::Display for TagErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A call that cannot be read. What was emitted before it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagError {
    /// What is wrong.
    pub kind: TagErrorKind,
    /// Byte offset in the output text at which it is wrong.
    pub offset: usize,
    /// What would have been right there.
    pub expected: String,
    /// The raw text of the failed call, from its opener through the text that made it fail.
    pub markup: String,
}

impl fmt::Display for TagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at byte {}: expected {}",
            self.kind, self.offset, self.expected
        )
    }
}

impl core::error::Error for TagError {}

/// Writes events, joining text of one channel that comes in several pieces.
pub(crate) struct Sink<'a>(pub(crate) &'a mut Vec<TagEvent>);

impl Sink<'_> {
    pub(crate) fn reasoning(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(TagEvent::Reasoning(last)) => last.push_str(text),
            _ => self.0.push(TagEvent::Reasoning(text.into())),
        }
    }

    pub(crate) fn content(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(TagEvent::Content(last)) => last.push_str(text),
            _ => self.0.push(TagEvent::Content(text.into())),
        }
    }

    pub(crate) fn begin(&mut self, index: u32, name: &str) {
        self.0.push(TagEvent::CallBegin {
            index,
            name: name.into(),
        });
    }

    pub(crate) fn arguments(&mut self, index: u32, text: String) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(TagEvent::CallArguments { fragment, .. }) => fragment.push_str(&text),
            _ => self.0.push(TagEvent::CallArguments {
                index,
                fragment: text,
            }),
        }
    }

    pub(crate) fn end(&mut self, index: u32) {
        self.0.push(TagEvent::CallEnd { index });
    }
}
