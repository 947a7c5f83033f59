//! The pieces that layers of every architecture are made of, each as the kernels it launches. What a piece computes
//! is said by the CPU backend; here is only what is launched on which buffers, in which order.

mod attention;
mod delta_net;

pub(crate) use attention::Attention;
pub(crate) use delta_net::{DeltaNet, channels_and_state};

use crate::memory::Ptr;
use crate::model::Kept;
use crate::ops::elementwise::{AddCheck, SiluMul, SiluMulQuantize};
use crate::ops::linear::{LinearF32, ProductQ8};
use crate::ops::norm::{RmsNorm, RmsNormQuantize};
use crate::ops::quantize::Quantize;
use crate::queue::Queue;
use crate::step::{Arrays, Buffers, Widths};
use crate::weights::{Loader, Matrix, Norm, Values};
use crate::{CudaError, DeviceError};
use lockstep_package::blueprint::{LayerParts, MixerParts};

/// What every layer of a step sees.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) arrays: &'a Arrays,
    pub(crate) buffers: &'a Buffers,
    /// (positions, pairs)
    pub(crate) cos: Ptr<f32>,
    pub(crate) sin: Ptr<f32>,
    pub(crate) pairs: usize,
}

impl Step<'_> {
    /// `y = x * W` for `m` rows of floats.
    pub(crate) fn linear(
        &self,
        matrix: &Matrix,
        x: Ptr<f32>,
        m: usize,
        y: Ptr<f32>,
    ) -> Result<(), DeviceError> {
        if let Values::Q8 { .. } = matrix.values {
            Quantize {
                q: self.buffers.quantized,
                scales: self.buffers.scales,
                x,
                m: m as i32,
                k: matrix.k as i32,
            }
            .launch(self.queue)?;
        }
        self.multiply(matrix, x, m, y)
    }

    /// `y = x * W`, where what a q8 matrix takes has been quantised already, and `x` is for the others.
    pub(crate) fn multiply(
        &self,
        matrix: &Matrix,
        x: Ptr<f32>,
        m: usize,
        y: Ptr<f32>,
    ) -> Result<(), DeviceError> {
        match matrix.values {
            Values::F32(w) => LinearF32 {
                y,
                w,
                x,
                m: m as i32,
                n: matrix.n as i32,
                k: matrix.k as i32,
                num_shards: matrix.num_shards as i32,
            }
            .launch(self.queue),
            Values::Q8 { values, scales } => ProductQ8 {
                y,
                w: values,
                w_scales: scales,
                x: self.buffers.quantized,
                x_scales: self.buffers.scales,
                m,
                n: matrix.n,
                k: matrix.k,
                num_shards: matrix.num_shards,
            }
            .launch(self.queue),
        }
    }

    /// `normed = norm(x)` of `m` rows, or of the rows named, quantised as well where a matrix that follows takes
    /// it so; as floats only where `floats` says so or that matrix takes them.
    pub(crate) fn norm(
        &self,
        norm: &Norm,
        (x, rows, m): (Ptr<f32>, Ptr<u32>, usize),
        (next, floats): (&Matrix, bool),
        (faults, op): (Ptr<u32>, u32),
    ) -> Result<(), DeviceError> {
        let (queue, buffers, n) = (self.queue, self.buffers, next.k as i32);
        match next.values {
            Values::F32(_) => RmsNorm {
                out: buffers.normed,
                x,
                rows,
                weight: norm.weight,
                eps: norm.eps,
                n,
                faults,
                op,
            }
            .launch(queue, m)?,
            Values::Q8 { .. } => RmsNormQuantize {
                q: buffers.quantized,
                scales: buffers.scales,
                out: if floats { buffers.normed } else { Ptr::null() },
                x,
                rows,
                weight: norm.weight,
                eps: norm.eps,
                m: m as i32,
                n,
                faults,
                op,
            }
            .launch(queue)?,
        }
        Ok(())
    }
}

/// What a layer mixes tokens with.
pub(crate) enum Mixer {
    Attention(Attention),
    DeltaNet(DeltaNet),
}

/// One layer: `x += mixer(norm(x))`, then `x += mlp(norm(x))`.
pub(crate) struct Layer {
    mixer_norm: Norm,
    pub(crate) mixer: Mixer,
    mlp_norm: Norm,
    gate_up: Matrix,
    down: Matrix,
}

/// Operations of a layer whose outcome is looked at, in order.
pub(crate) const LAYER_OPS: u32 = 4;

impl Layer {
    pub(crate) fn load(loader: &mut Loader<'_>, parts: &LayerParts) -> Result<Layer, CudaError> {
        let place = parts.place;
        Ok(Layer {
            mixer_norm: loader.norm(&parts.mixer_norm)?,
            mixer: match &parts.mixer {
                MixerParts::Attention(parts) => {
                    Mixer::Attention(Attention::load(loader, parts, place)?)
                }
                MixerParts::DeltaNet(parts) => {
                    Mixer::DeltaNet(DeltaNet::load(loader, parts, place)?)
                }
            },
            mlp_norm: loader.norm(&parts.mlp_norm)?,
            gate_up: loader.matrix(&parts.gate_up)?,
            down: loader.matrix(&parts.down)?,
        })
    }

    /// How wide the buffers of a step have to be.
    pub(crate) fn widths(&self) -> Widths {
        let own = Widths {
            hidden: self.down.n,
            projected: self.gate_up.n,
            inputs: self.down.k.max(self.gate_up.k),
            mixed: self.down.k,
            ..Default::default()
        };
        own.max(match &self.mixer {
            Mixer::Attention(attention) => attention.widths(),
            Mixer::DeltaNet(delta_net) => delta_net.widths(),
        })
    }

    /// The name of one of its operations.
    pub(crate) fn op(&self, which: u32) -> &'static str {
        match (which, &self.mixer) {
            (1, Mixer::Attention(_)) => "attention",
            (1, Mixer::DeltaNet(_)) => "delta_net",
            (2, _) => "mlp_norm",
            (3, _) => "mlp",
            _ => "norm",
        }
    }

    /// Runs the layer on the rows of `x`, in place. `first_op` numbers its operations.
    pub(crate) fn forward(
        &self,
        step: &Step<'_>,
        kept: &Kept,
        first_op: u32,
    ) -> Result<(), DeviceError> {
        let (buffers, m) = (step.buffers, step.arrays.num_rows);
        let input = (buffers.x, Ptr::null(), m);
        let fault = |op| (buffers.faults, first_op + op);
        let (first, floats) = match &self.mixer {
            Mixer::Attention(attention) => (attention.first(), false),
            // Its gates take floats whatever the rest takes.
            Mixer::DeltaNet(delta_net) => (delta_net.first(), true),
        };
        step.norm(&self.mixer_norm, input, (first, floats), fault(0))?;
        match &self.mixer {
            Mixer::Attention(attention) => attention.forward(step, kept)?,
            Mixer::DeltaNet(delta_net) => delta_net.forward(step, kept)?,
        }
        self.add(step, fault(1))?;
        step.norm(&self.mlp_norm, input, (&self.gate_up, false), fault(2))?;
        self.mlp(step)?;
        self.add(step, fault(3))
    }

    /// Only what the mixer leaves in the cache; the layer's output is not computed.
    pub(crate) fn remember(&self, step: &Step<'_>, kept: &Kept) -> Result<(), DeviceError> {
        let Mixer::Attention(attention) = &self.mixer else {
            unreachable!("a drafting head has a layer of attention")
        };
        let input = (step.buffers.x, Ptr::null(), step.arrays.num_rows);
        let next = (attention.first(), false);
        step.norm(&self.mixer_norm, input, next, (Ptr::null(), 0))?;
        attention.project(step, kept)
    }

    fn add(&self, step: &Step<'_>, (faults, op): (Ptr<u32>, u32)) -> Result<(), DeviceError> {
        let add = AddCheck {
            x: step.buffers.x,
            y: step.buffers.out,
            n: self.down.n as i32,
            faults,
            op,
        };
        add.launch(step.queue, step.arrays.num_rows)
    }

    fn mlp(&self, step: &Step<'_>) -> Result<(), DeviceError> {
        let (queue, buffers, m) = (step.queue, step.buffers, step.arrays.num_rows);
        step.multiply(&self.gate_up, buffers.normed, m, buffers.projected)?;
        let n = self.down.k as i32;
        match self.down.values {
            Values::F32(_) => SiluMul {
                out: buffers.mixed,
                projected: buffers.projected,
                n,
            }
            .launch(queue, m)?,
            Values::Q8 { .. } => SiluMulQuantize {
                q: buffers.quantized,
                scales: buffers.scales,
                projected: buffers.projected,
                m: m as i32,
                n,
            }
            .launch(queue)?,
        }
        step.multiply(&self.down, buffers.mixed, m, buffers.out)
    }
}
