//! The sampler on the device, and what it is told.

use super::shape;
use crate::error::DeviceError;
use crate::memory::Ptr;
use crate::queue::Queue;
use crate::{kernel, pointer_to};
use bytemuck::{Pod, Zeroable};
use lockstep_numerics::sampler::{ONE, SamplerParams};
use lockstep_step::NO_ID;

/// How the token of one scored position is drawn: `DrawParams` of `kernels/rank.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct DrawParams {
    pub(crate) seed: u64,
    /// Of the drawn token in its sequence.
    pub(crate) position: u64,
    /// In units of 2^-32.
    pub(crate) top_p: u64,
    /// In units of 2^-32.
    pub(crate) min_p: u64,
    pub(crate) temperature: f32,
    pub(crate) frequency_penalty: f32,
    pub(crate) presence_penalty: f32,
    pub(crate) repetition_penalty: f32,
    pub(crate) top_k: u32,
    /// The row of logits; `NO_ID` for padding.
    pub(crate) row: u32,
    /// The row of the masks; `NO_ID` for none.
    pub(crate) mask: u32,
    /// How many log-probabilities are wanted besides the drawn token's; `NO_ID` for none at all.
    pub(crate) top_logprobs: u32,
    pub(crate) counts_at: u32,
    pub(crate) num_counts: u32,
    pub(crate) extras_at: u32,
    pub(crate) num_extras: u32,
    pub(crate) bias_at: u32,
    pub(crate) num_bias: u32,
}

const _: () = assert!(size_of::<DrawParams>() == 88, "as rank.cuh has it");

impl DrawParams {
    /// Padding: nothing is drawn.
    pub(crate) const NONE: DrawParams = DrawParams {
        seed: 0,
        position: 0,
        top_p: ONE,
        min_p: 0,
        temperature: 0.0,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        repetition_penalty: 1.0,
        top_k: 0,
        row: NO_ID,
        mask: NO_ID,
        top_logprobs: NO_ID,
        counts_at: 0,
        num_counts: 0,
        extras_at: 0,
        num_extras: 0,
        bias_at: 0,
        num_bias: 0,
    };

    /// Checked parameters, without mask or lists.
    pub(crate) fn new(params: &SamplerParams, row: u32, position: u64) -> DrawParams {
        // Exact in float64: a float32 has 24 bits, and 2^32 moves only the exponent.
        let fixed = |p: f32| f64::from(p) * ONE as f64;
        DrawParams {
            seed: params.seed,
            position,
            top_p: fixed(params.top_p) as u64,
            min_p: fixed(params.min_p).ceil() as u64,
            temperature: params.temperature,
            frequency_penalty: params.frequency_penalty,
            presence_penalty: params.presence_penalty,
            repetition_penalty: params.repetition_penalty,
            top_k: params.top_k,
            row,
            ..DrawParams::NONE
        }
    }
}

/// How often a token has occurred: `TokenCount` of `kernels/draw.cu`. Each token is listed at most once.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct TokenCount {
    pub(crate) token: u32,
    /// 0 or 1.
    pub(crate) in_prompt: u32,
    pub(crate) output: u32,
}

/// What is added to a token's logit: `TokenBias` of `kernels/draw.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct TokenBias {
    pub(crate) token: u32,
    pub(crate) bias: f32,
}

/// What a status says: as `kernels/rank.cuh` has it.
pub(crate) const DRAWN: u32 = 0;
/// A logit is not finite, as given or after penalties and bias.
pub(crate) const NOT_FINITE: u32 = 1;
/// The mask allows no token.
pub(crate) const NOTHING_ALLOWED: u32 = 2;
/// A count, a bias or an extra row names a token that there is not.
pub(crate) const UNKNOWN_TOKEN: u32 = 3;

pointer_to!(DrawParams = "DrawParams*");
pointer_to!(TokenCount = "TokenCount*");
pointer_to!(TokenBias = "TokenBias*");

kernel! {
    /// One token per position, or why there is none.
    pub(crate) DrawTokens = "draw" in "draw" {
        drawn: Ptr<u32>, statuses: Ptr<u32>, params: Ptr<DrawParams>, logits: Ptr<f32>,
        edited: Ptr<f32>, counts: Ptr<TokenCount>, biases: Ptr<TokenBias>, extras: Ptr<u32>,
        tokens: Ptr<u32>, masks: Ptr<u32>, vocab: i32,
    }
}

impl DrawTokens {
    pub(crate) fn launch(&self, queue: &Queue, num_positions: usize) -> Result<(), DeviceError> {
        queue.launch(self, shape([num_positions, 1, 1], 512))
    }
}
