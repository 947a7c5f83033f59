//! The arithmetic of the law: every float operation that a backend may use, defined once.
//!
//! This crate must never call libm, relax a rounding, or let a result depend on the width of a
//! register: an elementary function is written once over [`Lanes`], and scalar, AVX2 and AVX-512
//! evaluate the same sequence of correctly rounded operations.
//!
//! | module | what it defines |
//! | --- | --- |
//! | [`lanes`] | the [`Lanes`] trait, its three widths, and [`dispatch`] |
//! | [`coefficients`] | every polynomial and reduction constant, shared with CUDA |
//! | [`elementary`] | exp, log, log1p, sigmoid, silu, softplus, tanh, gelu, rsqrt in float32 |
//! | [`double`] | exp, log, sin and cos in float64, for tables made once on the host |
//! | [`reduce`] | the orders of summation: `run` and `lanes(64)` |
//! | [`groups`] | groups of 128, shards, and the tree across shards |
//! | [`quantize`] | q8 of activations and weights |
//! | [`narrow`] | bf16 and f16 to float32, float32 to bf16 |
//! | [`rotary`] | rotary tables: default, linear, llama3 |
//! | [`philox`] | the counter-based noise of the sampler |
//! | [`mod@digest`] | the 64-bit digest of a row of logits |
//! | [`sampler`] | logits to one drawn token, in fixed point |

pub mod coefficients;
pub mod digest;
pub mod double;
pub mod elementary;
pub mod groups;
pub mod lanes;
pub mod narrow;
pub mod philox;
pub mod quantize;
pub mod reduce;
pub mod rotary;
pub mod sampler;

#[cfg(test)]
mod tests;

pub use digest::digest;
pub use lanes::{Kernel, Lanes, Level, dispatch, dispatch_at};
pub use philox::draw_u64;
