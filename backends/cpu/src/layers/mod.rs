//! The pieces that layers of every architecture are made of. A blueprint says which pieces an
//! architecture has and what their tensors are called; how a piece computes is said here, once.

mod attention;
mod delta_net;
mod mlp;

pub(crate) use attention::Attention;
pub(crate) use delta_net::{DeltaNet, state_shape};
pub(crate) use mlp::Mlp;

use crate::batch::{Batch, Machine};
use crate::disjoint::for_rows;
use crate::kernels::{self, Add, RmsNorm};
use crate::load::Norm;
use crate::watch::Watch;
use lockstep_numerics::rotary::RotaryTable;

/// Rows that one task of a cheap loop takes.
pub(crate) const ROWS_PER_TASK: usize = 8;

/// What every layer of a step sees.
pub(crate) struct Step<'a> {
    pub(crate) machine: Machine<'a>,
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) rotary: &'a RotaryTable,
}

/// Buffers that layers share and that live from step to step.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) projected: Vec<f32>,
    pub(crate) mixed: Vec<f32>,
    pub(crate) inner: Vec<f32>,
    pub(crate) gates: Vec<f32>,
}

impl Scratch {
    /// Leaves nothing of an earlier step.
    pub(crate) fn poison(&mut self) {
        let Scratch {
            projected,
            mixed,
            inner,
            gates,
        } = self;
        for buffer in [projected, mixed, inner, gates] {
            buffer.fill(f32::NAN);
        }
    }
}

/// `out = norm(x)`, row by row; rows whose sum of squares overflows are marked.
pub(crate) fn normalise(
    machine: Machine<'_>,
    norm: &Norm,
    x: &[f32],
    out: &mut [f32],
    watch: &Watch,
) {
    let width = norm.weight.len();
    for_rows(machine.pool, out, width, ROWS_PER_TASK, &|row, out| {
        let finite = kernels::run(
            machine.isa,
            RmsNorm {
                x: &x[row * width..(row + 1) * width],
                weight: &norm.weight,
                eps: norm.eps,
                out,
            },
        );
        if !finite {
            watch.mark(row);
        }
    });
}

/// `x = x + y`, row by row; rows that are not finite are marked.
pub(crate) fn add_and_check(
    machine: Machine<'_>,
    width: usize,
    x: &mut [f32],
    y: &[f32],
    watch: &Watch,
) {
    for_rows(machine.pool, x, width, ROWS_PER_TASK, &|row, x| {
        let y = &y[row * width..(row + 1) * width];
        kernels::run(machine.isa, Add { x: &mut *x, y });
        watch.check(machine.isa, row, x);
    });
}
