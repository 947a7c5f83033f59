//! The gated MLP: `down(silu(gate(x)) * up(x))`.

use super::{ROWS_PER_TASK, Scratch, Step};
use crate::Linear;
use crate::disjoint::{for_rows, sized};
use crate::kernels::{self, SiluMul};
use crate::load::Loader;
use crate::watch::Watch;
use lockstep_package::LoadError;
use lockstep_package::blueprint::LayerParts;

pub(crate) struct Mlp {
    // Outputs: gates, then ups.
    gate_up: Linear,
    down: Linear,
}

impl Mlp {
    pub(crate) fn load(loader: &Loader<'_>, parts: &LayerParts) -> Result<Mlp, LoadError> {
        Ok(Mlp {
            gate_up: loader.linear(&parts.gate_up)?,
            down: loader.linear(&parts.down)?,
        })
    }

    /// Bytes of weights that a step reads.
    pub(crate) fn num_bytes(&self) -> usize {
        self.gate_up.num_bytes() + self.down.num_bytes()
    }

    /// `x` and `out` are (rows, hidden).
    pub(crate) fn forward(
        &self,
        step: &Step<'_>,
        watch: &mut Watch,
        scratch: &mut Scratch,
        x: &[f32],
        out: &mut [f32],
    ) {
        let (isa, pool, m) = (step.machine.isa, step.machine.pool, step.batch.num_rows());
        let width = self.down.k();
        let projected = sized(&mut scratch.projected, m * 2 * width);
        self.gate_up.forward(isa, pool, x, m, projected);
        watch.ended(step.machine, "gate_up", 2 * width, projected);
        let inner = sized(&mut scratch.inner, m * width);
        let projected = &*projected;
        for_rows(pool, inner, width, ROWS_PER_TASK, &|row, out| {
            let (gate, up) = projected[row * 2 * width..(row + 1) * 2 * width].split_at(width);
            kernels::run(isa, SiluMul { gate, up, out });
        });
        watch.ended(step.machine, "silu_mul", width, inner);
        self.down.forward(isa, pool, inner, m, out);
        watch.ended(step.machine, "down", self.down.n(), out);
    }
}
