//! The operations of a step besides linear layers, each written once over float lanes. Lanes lie across
//! outputs, never along a `run` reduction, so every width gives the bits of `reference.rs`.
//!
//! A kernel must never read a masked or unwritten slot: what lies there may be anything, NaN included.

pub mod agreement;
mod attention;
mod delta;
mod elementwise;
mod norm;

pub(crate) use attention::{AttendBlock, HEAD_DIM_MAX, TILE, Tile};
pub(crate) use delta::{CONV_TAPS_MAX, ConvSilu, DeltaGates, DeltaStep};
pub(crate) use elementwise::{Add, AllFinite, Rotate, SigmoidMul, SiluMul};
pub(crate) use norm::{GatedRmsNorm, L2Norm, RmsNorm};

use crate::Isa;
use lockstep_numerics::lanes::{Kernel, Level, dispatch_at};

/// The register width of an instruction set.
pub(crate) fn level(isa: Isa) -> Level {
    match isa {
        Isa::Scalar => Level::Scalar,
        Isa::Avx2 => Level::Avx2,
        Isa::Avx512 => Level::Avx512,
    }
}

/// Runs a kernel.
#[inline]
pub(crate) fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    dispatch_at(level(isa), kernel)
}

#[cfg(test)]
mod tests;
