//! What may not matter, and what a request may ask for: the axes, their values, and which of these can't
//! occur together. A value more is a line more. It must never know how a value is brought about.

use lockstep_core::DRAFT_DEPTH_MAX;

/// A closed set of values, with the name of each.
macro_rules! values {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$value_doc])* $value,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$value,)+];

            /// As it is called in tables.
            pub fn name(self) -> &'static str {
                match self { $($name::$value => $text,)+ }
            }
        }
    };
}

values! {
    /// How tokens are drawn.
    Sampling {
        /// The most likely token.
        Greedy = "greedy",
        /// Temperature, top-k, top-p, min-p, a seed.
        Seeded = "seeded",
        /// The same with penalties and a logit bias.
        Penalties = "penalties",
        /// The same with log-probabilities.
        Logprobs = "logprobs",
    }
}

values! {
    /// What the answer is held to.
    Constraint {
        /// Nothing: tools may be called, and calls may be wrong.
        None = "none",
        /// Calls, if there are any.
        Auto = "auto",
        /// At least one call.
        Required = "required",
        /// JSON under a schema.
        JsonSchema = "json_schema",
    }
}

values! {
    /// How calls are written.
    Format {
        /// GLM.
        Glm = "glm",
        /// Qwen's XML.
        QwenXml = "qwen_xml",
        /// Hermes' JSON.
        HermesJson = "hermes_json",
    }
}

values! {
    /// Who proposes drafts.
    DraftKind {
        /// Nobody.
        Off = "off",
        /// The grammar.
        Forced = "forced",
        /// The longest earlier match.
        Suffix = "suffix",
        /// The last few tokens.
        Ngram = "ngram",
        /// The checkpoint's own head.
        Mtp = "mtp",
        /// A model beside it.
        DraftModel = "draft_model",
        /// All of these.
        All = "all",
        /// A recording, so many tokens at a time as chance will have it, or none.
        Random = "random",
        /// A recording that was spoilt on purpose.
        Adversarial = "adversarial",
    }
}

values! {
    /// What of earlier requests is kept.
    Cache {
        /// Nothing ran before.
        Cold = "cold",
        /// The same requests ran before.
        Warm = "warm",
        /// Nothing is kept.
        Off = "off",
    }
}

values! {
    /// How steps follow each other.
    Scheduling {
        /// A step is planned when the one before it has ended.
        Sync = "sync",
        /// A step is planned while the one before it runs.
        Overlapped = "overlapped",
        /// Now so, now so, in the middle of requests.
        Switching = "switching",
    }
}

values! {
    /// What becomes of drafts that a constraint rejects.
    Rejected {
        /// They are cut off before the step is planned, where that can be known.
        Trim = "trim",
        /// They stay in the step as padding.
        Pad = "pad",
    }
}

values! {
    /// Whether a step is laid out in buffers of fixed sizes.
    Buffers {
        /// Each step in buffers of its own size.
        Off = "off",
        /// In buffers of a few sizes, with padding that is poisoned.
        On = "on",
    }
}

/// Drafts of a step, at most.
pub const DEPTHS: [u32; 5] = [1, 2, 3, 7, DRAFT_DEPTH_MAX];

/// Requests at the same time.
pub const CONCURRENCIES: [u32; 3] = [1, 8, 32];

/// Requests of a deployment that serves one at a time.
const REQUESTS_IN_TURN: usize = 4;

/// Lengths of prompts: around the ends of nine blocks, and some others.
pub const LENGTHS: [u32; 32] = [
    63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 319, 320, 321, 383, 384, 385, 447,
    448, 449, 511, 512, 513, 575, 576, 577, 1, 2, 33, 100, 600,
];

/// An axis. Those up to [`Axis::NUM_SHARED`] have one value in a whole deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// What computes.
    Model,
    /// [`DraftKind`].
    Drafter,
    /// [`DEPTHS`].
    Depth,
    /// [`CONCURRENCIES`].
    Concurrency,
    /// [`Cache`].
    Cache,
    /// [`Scheduling`].
    Scheduling,
    /// [`Rejected`].
    Rejected,
    /// [`Buffers`].
    Buffers,
    /// [`Sampling`].
    Sampling,
    /// [`Constraint`].
    Constraint,
    /// [`Format`].
    Format,
    /// [`LENGTHS`].
    Length,
}

impl Axis {
    /// All of them, in the order of a run's values.
    pub const ALL: [Axis; 12] = [
        Axis::Model,
        Axis::Drafter,
        Axis::Depth,
        Axis::Concurrency,
        Axis::Cache,
        Axis::Scheduling,
        Axis::Rejected,
        Axis::Buffers,
        Axis::Sampling,
        Axis::Constraint,
        Axis::Format,
        Axis::Length,
    ];

    /// Axes of the deployment; the others are of the request.
    pub const NUM_SHARED: usize = 8;

    /// The axes that touch speculation.
    pub const SPECULATION: [Axis; 8] = [
        Axis::Drafter,
        Axis::Depth,
        Axis::Concurrency,
        Axis::Cache,
        Axis::Scheduling,
        Axis::Rejected,
        Axis::Buffers,
        Axis::Constraint,
    ];

    /// As it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Model => "model",
            Axis::Drafter => "drafter",
            Axis::Depth => "depth",
            Axis::Concurrency => "concurrency",
            Axis::Cache => "prefix cache",
            Axis::Scheduling => "scheduling",
            Axis::Rejected => "rejected drafts",
            Axis::Buffers => "static buffers",
            Axis::Sampling => "sampling",
            Axis::Constraint => "constraint",
            Axis::Format => "tag format",
            Axis::Length => "prompt tokens",
        }
    }

    /// The names of its values.
    pub fn values(self, models: &[String]) -> Vec<String> {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let numbers = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect();
        match self {
            Axis::Model => models.to_vec(),
            Axis::Drafter => named(&names(DraftKind::ALL, DraftKind::name)),
            Axis::Depth => numbers(&DEPTHS),
            Axis::Concurrency => numbers(&CONCURRENCIES),
            Axis::Cache => named(&names(Cache::ALL, Cache::name)),
            Axis::Scheduling => named(&names(Scheduling::ALL, Scheduling::name)),
            Axis::Rejected => named(&names(Rejected::ALL, Rejected::name)),
            Axis::Buffers => named(&names(Buffers::ALL, Buffers::name)),
            Axis::Sampling => named(&names(Sampling::ALL, Sampling::name)),
            Axis::Constraint => named(&names(Constraint::ALL, Constraint::name)),
            Axis::Format => named(&names(Format::ALL, Format::name)),
            Axis::Length => numbers(&LENGTHS),
        }
    }
}

fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|value| name(*value)).collect()
}

/// What a deployment is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// Index of the model.
    pub model: usize,
    /// Who proposes drafts.
    pub drafter: DraftKind,
    /// Drafts of a step, at most.
    pub depth: u32,
    /// Requests at the same time.
    pub concurrency: u32,
    /// What of earlier requests is kept.
    pub cache: Cache,
    /// How steps follow each other.
    pub scheduling: Scheduling,
    /// What becomes of drafts that a constraint rejects.
    pub rejected: Rejected,
    /// Whether buffers have fixed sizes.
    pub buffers: Buffers,
}

impl Deployment {
    /// From the indices of its values.
    pub fn new(values: &[u8]) -> Deployment {
        let at = |axis: Axis| usize::from(values[axis as usize]);
        Deployment {
            model: at(Axis::Model),
            drafter: DraftKind::ALL[at(Axis::Drafter)],
            depth: DEPTHS[at(Axis::Depth)],
            concurrency: CONCURRENCIES[at(Axis::Concurrency)],
            cache: Cache::ALL[at(Axis::Cache)],
            scheduling: Scheduling::ALL[at(Axis::Scheduling)],
            rejected: Rejected::ALL[at(Axis::Rejected)],
            buffers: Buffers::ALL[at(Axis::Buffers)],
        }
    }

    /// Requests that such a deployment is given.
    pub fn num_requests(values: &[u8]) -> usize {
        let concurrency = Deployment::new(values).concurrency as usize;
        concurrency.max(REQUESTS_IN_TURN)
    }
}

/// What a request is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// What the answer is held to.
    pub constraint: Constraint,
    /// How calls are written.
    pub format: Format,
    /// Tokens of the prompt.
    pub length: u32,
}

impl Ask {
    /// From the indices of its values, those of the deployment left out.
    pub fn new(values: &[u8]) -> Ask {
        let at = |axis: Axis| usize::from(values[axis as usize - Axis::NUM_SHARED]);
        Ask {
            sampling: Sampling::ALL[at(Axis::Sampling)],
            constraint: Constraint::ALL[at(Axis::Constraint)],
            format: Format::ALL[at(Axis::Format)],
            length: LENGTHS[at(Axis::Length)],
        }
    }
}

/// Values that can't occur together, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The values.
    pub values: Vec<(Axis, u8)>,
    /// Why not, as a sentence of the table.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_where_their_number_says() {
        for (idx, axis) in Axis::ALL.into_iter().enumerate() {
            assert_eq!(axis as usize, idx);
            let values = axis.values(&["a".to_owned()]);
            assert!(!values.is_empty() && values.len() < 255);
            let mut names = values.clone();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), values.len(), "{values:?}");
        }
    }

    #[test]
    fn lengths_are_around_the_ends_of_blocks() {
        for k in 1..=9 {
            for length in k * 64 - 1..=k * 64 + 1 {
                assert!(LENGTHS.contains(&length), "{length}");
            }
        }
        assert!(LENGTHS.iter().all(|length| *length <= 600));
    }
}
