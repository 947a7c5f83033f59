//! What a capture says, one record after another, in the order in which it happened. These types are the file
//! format of [`FORMAT`]: their fields are part of it, and a change of one is a new format.
//!
//! Plans, outputs and sampling parameters are those of `step`, whose sources are pinned in `docs/CAPTURE.md`.

use lockstep_step::{
    BackendLimits, Digest, Logprobs, Proposal, ProposalPlan, SamplingParams, SeqId, StepId,
    StepOutput, StepPlan, TokenId,
};
use serde::{Deserialize, Serialize};

/// The format that is written.
pub const FORMAT: u16 = 1;

/// What holds for all of a capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The program that wrote it, with its version.
    pub build: String,
    /// The package that was served.
    pub package: PackageId,
    /// What computed, with instruction set or device.
    pub backend: String,
    /// What the backend could hold.
    pub limits: BackendLimits,
    /// Settings of engine and server by the names of their flags, in order of name.
    pub settings: Vec<(String, String)>,
    /// What was left out.
    pub redaction: Redaction,
    /// Seconds since 1970 when recording began.
    pub begun: u64,
    /// Whether everything is here that the engine did from its start on. It is not where a capture was taken out of
    /// a longer one.
    pub is_whole: bool,
}

/// A package, by content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageId {
    /// Its name.
    pub name: String,
    /// Its files.
    pub files: Vec<FileId>,
    /// How weights are computed with, and what else of the package was chosen by flags.
    pub options: Vec<(String, String)>,
}

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// Its name in the package.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of its content in hexadecimal; empty where nobody computed it.
    pub sha256: String,
}

/// What is left out of a capture for the sake of those whose text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redaction {
    /// Nothing.
    None,
    /// Text: what was said as characters, tools, grammars and stop strings. Token ids stay, and with them everything
    /// that is computed; masks can't be computed again.
    Text,
    /// Token ids as well: of a prompt or an answer each is a keyed digest of itself and of all before it, and in plans
    /// and draws there are none. Digests of logits and masks stay, so that two captures can be compared.
    Tokens,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The engine took a sequence.
    Request(Box<RequestRecord>),
    /// Whoever would have read it is gone: its events are nobody's from here on.
    Left(SeqId),
    /// A step was started. Where one comes before the output of the step before it, it was planned ahead.
    Plan(StepPlan),
    /// With what a step's draws were masked, one per mask row of the plan; None where a row was left empty.
    Masks(StepId, Vec<Option<Digest>>),
    /// What a step came to, or why it failed.
    Output(StepId, Result<StepOutput, String>),
    /// What models were asked before the step of this number, and what they proposed.
    Proposals(StepId, ProposalPlan, Vec<Proposal>),
    /// A reader was told something.
    Event(EventRecord),
    /// Bytes of a response body were handed to the connection.
    Stream(StreamRecord),
    /// Digests of what operations computed for a step, where they were asked for.
    Ops(StepId, Vec<OpRecord>),
    /// The engine's loop ended, and why.
    End(String),
    /// So many records are missing here: they came faster than they could be written.
    Lost(u64),
}

/// A sequence as the engine was asked for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// The engine's name for it.
    pub seq: SeqId,
    /// The request's, as its response carries it.
    pub request_id: String,
    /// Which of its choices.
    pub choice: u32,
    /// What the model reads first.
    pub prompt: Vec<TokenId>,
    /// How its tokens are drawn, the seed among it.
    pub sampling: SamplingParams,
    /// Its limit.
    pub max_tokens: u32,
    /// Who shares with it.
    pub cache_salt: String,
    /// The tokens that end it.
    pub end_tokens: Vec<TokenId>,
    /// The strings that do.
    pub stop_strings: Vec<String>,
    /// How it is read.
    pub tags: TagsRecord,
    /// The tokens that reasoning may take, and what closes it then.
    pub reasoning: Option<(u32, Vec<TokenId>)>,
    /// What it is held to.
    pub constraint: ConstraintRecord,
    /// What drafts for it, where it says so itself, as the flag has it.
    pub speculation: Option<String>,
}

/// What an answer was held to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConstraintRecord {
    /// Nothing.
    None,
    /// This, as text from which it can be made again.
    Source(String),
    /// Something that is not written down.
    Unknown,
}

/// How an output is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagsRecord {
    /// The format of calls, by its name.
    pub format: String,
    /// Whether the prompt left reasoning open.
    pub starts_in_reasoning: bool,
    /// Whether think tags mean anything.
    pub reasoning: bool,
    /// Whether calls are delivered as they are written.
    pub eager: bool,
    /// Tools, with the texts of their schemas.
    pub tools: Vec<(String, Option<String>)>,
}

/// Text, or what is left of it.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
pub enum Text {
    /// All of it.
    Plain(Vec<u8>),
    /// Its length in bytes, and its digest.
    Digest(u32, Digest),
}

impl Text {
    /// Its length in bytes, and its digest.
    pub fn digest(&self) -> (u32, Digest) {
        match self {
            Text::Plain(bytes) => (bytes.len() as u32, crate::checksum::digest(bytes)),
            Text::Digest(len, digest) => (*len, *digest),
        }
    }
}

impl PartialEq for Text {
    /// What is redacted on one side is compared by its digest.
    fn eq(&self, other: &Text) -> bool {
        match (self, other) {
            (Text::Plain(own), Text::Plain(other)) => own == other,
            _ => self.digest() == other.digest(),
        }
    }
}

/// What a reader was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// The sequence.
    pub seq: SeqId,
    /// Its tokens of output by then.
    pub at: u32,
    /// The news.
    pub news: News,
}

/// The kinds of news.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum News {
    /// It is part of a step for the first time.
    Scheduled,
    /// It lost its blocks.
    Preempted,
    /// A token was committed.
    Token {
        /// The token.
        token: TokenId,
        /// What it adds to the text.
        bytes: Text,
        /// Where the request asked for them.
        logprobs: Option<Logprobs>,
        /// Of the logits that it was drawn from.
        digest: Digest,
    },
    /// A control token was out of place.
    Dropped(TokenId),
    /// Text of the reasoning channel.
    Reasoning(Text),
    /// Text of the answer.
    Content(Text),
    /// A call starts, with the name of its tool.
    CallBegin(u32, Text),
    /// A piece of a call's arguments.
    CallArguments(u32, Text),
    /// A call is complete.
    CallEnd(u32),
    /// The end.
    Finished(FinishRecord),
}

/// How a sequence ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishRecord {
    /// Why.
    pub why: Why,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the output.
    pub completion_tokens: u32,
    /// Of these, tokens of reasoning.
    pub reasoning_tokens: u32,
    /// Of the prompt, tokens that the cache had.
    pub cached_tokens: u32,
    /// The markup of a call that the limit cut off.
    pub dropped_call: Option<Text>,
}

/// Why a sequence ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Why {
    /// The model drew an end token.
    EndToken(TokenId),
    /// A stop string appeared.
    StopString(Text),
    /// The limit was reached.
    Length,
    /// After at least one whole call.
    ToolCalls,
    /// The client asked for it.
    Aborted,
    /// An error, by its stable name, with its words.
    Error(String, Text),
}

impl Why {
    /// The names of all, in order.
    pub const NAMES: [&str; 6] = [
        "end_token",
        "stop_string",
        "length",
        "tool_calls",
        "aborted",
        "error",
    ];

    /// Its name in tables and flags.
    pub fn name(&self) -> &'static str {
        match self {
            Why::EndToken(_) => Why::NAMES[0],
            Why::StopString(_) => Why::NAMES[1],
            Why::Length => Why::NAMES[2],
            Why::ToolCalls => Why::NAMES[3],
            Why::Aborted => Why::NAMES[4],
            Why::Error(..) => Why::NAMES[5],
        }
    }
}

/// Bytes of a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// The request.
    pub request_id: String,
    /// The bytes.
    pub bytes: Text,
    /// Whether the body ends with them.
    pub is_last: bool,
}

/// What one operation computed for one query token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpRecord {
    /// The sequence.
    pub seq: SeqId,
    /// The position of the token.
    pub pos: u32,
    /// The layer, where the operation belongs to one.
    pub layer: Option<u32>,
    /// Its name.
    pub op: String,
    /// Of its results.
    pub digest: Digest,
}
