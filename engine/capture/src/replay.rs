//! Computes a capture again, stage by stage, each from what it really got: plans against what was committed before
//! them, logits, masks and draws by a fresh engine that is made to say the very tokens that were recorded, and what
//! readers were told against what these tokens say. So a stage that was fed nonsense and did the right thing with
//! it is innocent.
//!
//! Nothing here depends on how a request was batched: a capture of one request can be replayed alone, and a
//! thousand of them beside each other.

mod again;
mod narrow;
mod ops;
pub(crate) mod plans;
mod responses;
pub(crate) mod told;

use crate::capture::Capture;
use crate::record::{News, Redaction};
use crate::stage::{Stage, Verdict};
pub use again::Place;
use lockstep_core::{EngineFault, Vocabulary};
use lockstep_step::{Backend, Matcher};
pub use narrow::{narrow, watched};
use ops::Ops;
use std::fmt;
use std::sync::Arc;

/// What makes matchers again, from the text of a constraint. None where that holds anyway.
pub type MakeMatcher<'a> = dyn Fn(&str) -> Result<Option<Box<dyn Matcher>>, String> + 'a;

/// What judges the bytes of a response by the news of its choices; None where it can't.
pub type JudgeResponse<'a> = dyn Fn(&[u8], &[Vec<&News>]) -> Option<Result<(), String>> + 'a;

/// What a capture is replayed with.
pub struct Witness<'a, B> {
    /// A backend that has computed nothing, of the package that was recorded.
    pub backend: B,
    /// The words of that package.
    pub vocabulary: Arc<Vocabulary>,
    /// Its constraints.
    pub matcher: &'a MakeMatcher<'a>,
    /// Its responses.
    pub response: &'a JudgeResponse<'a>,
    /// Sequences that are computed at once.
    pub num_seqs: u32,
    /// Is told how many of how many sequences are done.
    pub progress: &'a dyn Fn(u64, u64),
}

/// Why a capture can't be replayed.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayError {
    /// There is no request in it.
    Empty,
    /// The backend's logits have another width.
    OtherVocabulary {
        /// Recorded.
        recorded: u32,
        /// Of the backend.
        found: u32,
    },
    /// The backend can't hold what was recorded.
    TooSmall {
        /// Tokens of the longest sequence that was recorded.
        wanted: u32,
        /// Tokens that the backend can hold.
        limit: u32,
    },
    /// There are no digests of operations that could be compared.
    NoOps,
    /// The fresh engine, or its backend, failed.
    Failed(String),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Empty => write!(f, "no request is in it, so there is nothing to replay"),
            ReplayError::OtherVocabulary { recorded, found } => write!(
                f,
                "logits were {recorded} wide, and this package's are {found}: it is another one"
            ),
            ReplayError::TooSmall { wanted, limit } => write!(
                f,
                "its longest sequence has {wanted} tokens, and the backend can hold {limit}"
            ),
            ReplayError::NoOps => write!(
                f,
                "no digests of operations can be compared: both backends must be of one kind that \
                 has them"
            ),
            ReplayError::Failed(message) => write!(f, "the replay itself failed: {message}"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<EngineFault> for ReplayError {
    fn from(fault: EngineFault) -> ReplayError {
        ReplayError::Failed(fault.to_string())
    }
}

/// What a replay found.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// At all stages.
    pub verdict: Verdict,
    /// Every position whose draw was committed.
    pub places: Vec<Place>,
    /// Digests of operations that were compared.
    pub num_ops: u64,
}

/// Replays a capture.
///
/// # Errors
/// If there is nothing to replay, or it can't be replayed with this witness.
pub fn replay<B: Backend>(
    capture: &Capture,
    witness: Witness<'_, B>,
) -> Result<Replayed, ReplayError> {
    if capture.requests.is_empty() {
        return Err(ReplayError::Empty);
    }
    let mut verdict = Verdict::default();
    responses::judge(capture, witness.response, &mut verdict);
    let seen = plans::look(capture, &mut verdict);
    for stage in [
        Stage::Logits,
        Stage::Mask,
        Stage::Draw,
        Stage::Verify,
        Stage::Detokenize,
        Stage::Stop,
        Stage::Tags,
    ] {
        if capture.header.redaction == Redaction::Tokens {
            verdict.unobserved(stage, "token ids are left out of the capture");
        }
    }
    let (mut places, mut num_ops) = (Vec::new(), 0);
    if capture.header.redaction != Redaction::Tokens {
        let committed = plans::committed(capture, &seen);
        let ops = Ops::of(capture, &seen);
        let again = again::run(capture, (committed, ops), witness)?;
        again.judge(capture, &mut verdict);
        num_ops = again.ops.num_compared;
        told::compare(capture, &again, &mut verdict);
        places = again.places;
    }
    Ok(Replayed {
        verdict,
        places,
        num_ops,
    })
}
