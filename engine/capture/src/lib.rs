//! Captures: what an engine did, written down so that it can be computed again elsewhere, and the stage that lied
//! named.
//!
//! `record` is the file format, `recorder` writes it while an engine runs, `ring` keeps it on disk within a bound,
//! and `replay` computes it again. It knows no package, no grammar compiler and no API: whoever replays brings a
//! backend and what makes matchers.

#![deny(unsafe_code)]

mod capture;
mod checksum;
mod compare;
mod convert;
mod extract;
mod format;
pub mod mirror;
mod record;
mod recorder;
mod redact;
mod replay;
mod ring;
mod stage;
mod tabulate;
#[cfg(test)]
mod tests;

pub use capture::{Capture, Step};
pub use compare::{Alone, CompareError, Compared, Setting, Side, compare};
pub use extract::of_request;
pub use format::{Contents, Damage, FormatError, MAGIC, framed, read, write_header};
pub use record::{
    ConstraintRecord, EventRecord, FORMAT, FileId, FinishRecord, Header, News, OpRecord, PackageId,
    Record, Redaction, RequestRecord, StreamRecord, TagsRecord, Text, Why,
};
pub use recorder::{About, Buffer, Recorded, Recorder, Sink};
pub use redact::Redactor;
pub use replay::{
    JudgeResponse, MakeMatcher, Place, ReplayError, Replayed, Witness, narrow, replay, watched,
};
pub use ring::{Ring, RingError, RingOptions, read_folder};
pub use stage::{Divergence, Found, Stage, Verdict};
pub use tabulate::{
    ExpressionError, Fact, Kind, Predicate, Share, Table, TabulateError, Tabulated, Tabulation,
    Unit,
};
