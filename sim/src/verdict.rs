//! The stages that a verdict can name, in the order of a token's life as far as it has one.

/// A stage of the server, as the thing that is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Drafts: what is computed for them, and what is taken back when they were wrong.
    Speculation,
    /// Masks and matchers, against the exact prefix that they stand at.
    Grammar,
    /// What is planned ahead, given up and taken up again.
    Overlap,
    /// Blocks, rows and kept prefixes: who holds what, and what it holds.
    Cache,
    /// From logits to a token.
    Sampler,
    /// What a backend computes for a plan that is right.
    Kernel,
    /// Text out of tokens, stop rules, streams, finish reasons and usage.
    Output,
    /// Reasoning and calls out of text.
    Tags,
    /// Cancellation, progress and leaks.
    Liveness,
    /// What is served: package, template, defaults.
    Package,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 10] = [
        Stage::Speculation,
        Stage::Grammar,
        Stage::Overlap,
        Stage::Cache,
        Stage::Sampler,
        Stage::Kernel,
        Stage::Output,
        Stage::Tags,
        Stage::Liveness,
        Stage::Package,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Speculation => "speculation",
            Stage::Grammar => "grammar",
            Stage::Overlap => "overlap",
            Stage::Cache => "cache",
            Stage::Sampler => "sampler",
            Stage::Kernel => "kernel",
            Stage::Output => "output",
            Stage::Tags => "tags",
            Stage::Liveness => "liveness",
            Stage::Package => "package",
        }
    }
}
