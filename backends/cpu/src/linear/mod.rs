//! Linear layers: `y[n] = sum over k of x[k] * W[n,k]`, by the f32 rule or the q8 rule of NUMERICS.md.
//! `reference.rs` is the definition; `f32.rs` and `q8.rs` give the same bits faster.

mod f32;
mod layout;
mod memory;
mod panel;
mod q8;
pub mod reference;
mod tasks;

use crate::{Isa, Pool};
use f32::F32Weights;
use layout::Layout;
pub use memory::HugeBuffer;
use q8::Q8Weights;
use std::fmt;
use std::str::FromStr;

/// How weights are held and products computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightRule {
    /// float32 weights: the accuracy baseline.
    F32,
    /// int8 weights and activations: the serving default.
    Q8,
}

impl fmt::Display for WeightRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WeightRule::F32 => "f32",
            WeightRule::Q8 => "q8",
        })
    }
}

impl FromStr for WeightRule {
    type Err = String;

    fn from_str(text: &str) -> Result<WeightRule, String> {
        match text {
            "f32" => Ok(WeightRule::F32),
            "q8" => Ok(WeightRule::Q8),
            other => Err(format!("unknown weight rule {other:?}: f32, q8")),
        }
    }
}

/// Fills the `k` weights of one output.
pub type ReadRow<'a, E> = dyn FnMut(usize, &mut [f32]) -> Result<(), E> + 'a;

/// Fills the `k` quantised weights of one output, and one scale for each group.
pub type ReadQ8Row<'a, E> = dyn FnMut(usize, &mut [i8], &mut [f32]) -> Result<(), E> + 'a;

/// The packed weights of one matrix (n outputs, k inputs).
pub struct Linear(Packed);

enum Packed {
    F32(F32Weights),
    Q8(Q8Weights),
}

impl Linear {
    /// Packs a matrix, row by row: `read_row(row, values)` fills the `k` weights of an output. Values must
    /// be finite. `row_parallel` holds for attention output and MLP down: their reduction is cut into
    /// shards.
    ///
    /// # Errors
    /// Whatever `read_row` returns.
    pub fn pack<E>(
        rule: WeightRule,
        n: usize,
        k: usize,
        row_parallel: bool,
        read_row: &mut ReadRow<'_, E>,
    ) -> Result<Linear, E> {
        let layout = Layout::new(n, k, row_parallel);
        let mut values = vec![0.0; k];
        match rule {
            WeightRule::F32 => {
                let mut weights = F32Weights::zeroed(layout);
                for row in 0..n {
                    read_row(row, &mut values)?;
                    weights.set_row(row, &values);
                }
                Ok(Linear(Packed::F32(weights)))
            }
            WeightRule::Q8 => Linear::pack_q8(n, k, row_parallel, &mut |row, to, to_scales| {
                read_row(row, &mut values)?;
                let (q, scales) = reference::quantize_row(&values);
                to.copy_from_slice(&q);
                to_scales.copy_from_slice(&scales);
                Ok(())
            }),
        }
    }

    /// Packs a matrix whose weights are quantised already, row by row.
    ///
    /// # Errors
    /// Whatever `read_row` returns.
    pub fn pack_q8<E>(
        n: usize,
        k: usize,
        row_parallel: bool,
        read_row: &mut ReadQ8Row<'_, E>,
    ) -> Result<Linear, E> {
        let layout = Layout::new(n, k, row_parallel);
        let (mut q, mut scales) = (vec![0; k], vec![0.0; layout.num_groups()]);
        let mut weights = Q8Weights::zeroed(layout);
        for row in 0..n {
            read_row(row, &mut q, &mut scales)?;
            weights.set_row(row, &q, &scales);
        }
        Ok(Linear(Packed::Q8(weights)))
    }

    /// Outputs.
    pub fn n(&self) -> usize {
        self.layout().n
    }

    /// Inputs.
    pub fn k(&self) -> usize {
        self.layout().k
    }

    /// Bytes of weights and scales that one product reads.
    pub fn num_bytes(&self) -> usize {
        let layout = self.layout();
        let num_outputs = layout.num_panels() * panel::PANEL;
        match &self.0 {
            Packed::F32(_) => num_outputs * layout.k * 4,
            Packed::Q8(_) => num_outputs * (layout.padded_k + 4 * layout.num_groups()),
        }
    }

    fn layout(&self) -> &Layout {
        match &self.0 {
            Packed::F32(weights) => &weights.layout,
            Packed::Q8(weights) => &weights.layout,
        }
    }

    /// `x` is (m, k), `y` is (m, n).
    ///
    /// # Panics
    /// If a length does not match.
    pub fn forward(&self, isa: Isa, pool: &Pool, x: &[f32], m: usize, y: &mut [f32]) {
        let (n, k) = (self.n(), self.k());
        assert_eq!(x.len(), m * k, "x of {m} rows, k = {k}");
        assert_eq!(y.len(), m * n, "y of {m} rows, n = {n}");
        match &self.0 {
            Packed::F32(weights) => weights.forward(isa, pool, x, m, y),
            Packed::Q8(weights) => weights.forward(isa, pool, x, m, y),
        }
    }
}

#[cfg(test)]
mod tests;
