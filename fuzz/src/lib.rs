//! Fuzz targets: functions of bytes that assert a law and panic where it doesn't hold.
//!
//! A target never decides by a clock, a thread or randomness: the same bytes take the same way. The
//! program of this crate runs targets on stable Rust; `fuzz/libfuzzer` runs the same functions under
//! libFuzzer, which is guided by coverage. `docs/fuzzing.md` says which law each target holds.

extern crate alloc;

pub mod corpus;
mod decode;
pub mod execute;
pub mod mutate;
pub mod smoke;
pub mod targets;

// Shared with the property tests of `core`.
#[path = "../../engine/core/src/tests/automaton.rs"]
mod automaton;

// Shared with the property tests of `grammar`: one vocabulary, one set of schemas, one law. These files
// name each other from the root of the crate.
#[path = "../../engine/grammar/tests/grammar/bench.rs"]
#[allow(dead_code)]
mod bench;
#[path = "../../engine/grammar/tests/grammar/formats.rs"]
mod formats;
#[path = "../../engine/grammar/tests/grammar/outline.rs"]
#[allow(dead_code)]
mod outline;
#[path = "../../engine/grammar/tests/grammar/reference.rs"]
#[allow(dead_code)]
mod reference;
#[path = "../../engine/grammar/tests/grammar/shapes.rs"]
#[allow(dead_code)]
mod shapes;
#[path = "../../engine/grammar/tests/grammar/toy.rs"]
#[allow(dead_code)]
mod toy;

#[cfg(test)]
mod tests;
