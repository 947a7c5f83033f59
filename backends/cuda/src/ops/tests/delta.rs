//! The gated delta net: convolution, gates, recurrence and output norm, with rows of state read and written by id.

use super::step::{OnDevice, Step};
use super::{CASES, Case, agree};
use crate::memory::Ptr;
use crate::ops::delta::{Convolve, DeltaGates, DeltaNet, GatedNorm};
use lockstep_cpu::reference;

/// Dimensions of a delta net, and how a row of its state is laid out.
#[derive(Clone, Copy, Debug)]
struct Dims {
    num_key_heads: usize,
    num_value_heads: usize,
    key_dim: usize,
    value_dim: usize,
    taps: usize,
}

impl Dims {
    fn random(case: &mut Case) -> Dims {
        let num_key_heads = case.rng.between(1, 3);
        Dims {
            num_key_heads,
            num_value_heads: num_key_heads * case.rng.between(1, 3),
            key_dim: case.rng.pick(&[8, 16, 64, 100, 128, 256]),
            value_dim: case.rng.pick(&[8, 32, 40, 96, 128]),
            taps: case.rng.between(2, 6),
        }
    }

    fn channels(&self) -> usize {
        2 * self.num_key_heads * self.key_dim + self.num_values()
    }

    fn num_values(&self) -> usize {
        self.num_value_heads * self.value_dim
    }

    /// The channels, then z.
    fn width(&self) -> usize {
        self.channels() + self.num_values()
    }

    fn conv_len(&self) -> usize {
        (self.taps - 1) * self.channels()
    }

    fn head_len(&self) -> usize {
        self.key_dim * self.value_dim
    }

    fn state_len(&self) -> usize {
        self.conv_len() + self.num_value_heads * self.head_len()
    }
}

/// Numbers that a delta net computes with.
struct Weights {
    conv: Vec<f32>,
    rate: Vec<f32>,
    bias: Vec<f32>,
    norm: Vec<f32>,
}

/// What a step makes of its inputs.
struct Expected {
    mixed: Vec<f32>,
    gates: Vec<f32>,
    core: Vec<f32>,
    out: Vec<f32>,
    state: Vec<f32>,
}

/// The window of inputs at a row, oldest first.
fn window(step: &Step, dims: &Dims, projected: &[f32], state: &[f32], row: usize) -> Vec<Vec<f32>> {
    let channels = dims.channels();
    let owner = step.owner(row);
    let place = owner.map_or(0, |(_, place)| place);
    let read = owner.and_then(|(seq, _)| step.layout.state_read(seq));
    let backs = (0..dims.taps).rev();
    backs
        .map(|back| {
            if back <= place {
                return projected[(row - back) * dims.width()..][..channels].to_vec();
            }
            let age = back - place;
            read.map_or(vec![0.0; channels], |read| {
                let past = &state[read.0 as usize * dims.state_len()..];
                past[(dims.taps - 1 - age) * channels..][..channels].to_vec()
            })
        })
        .collect()
}

fn convolved(dims: &Dims, inputs: &[Vec<f32>], weights: &Weights) -> Vec<f32> {
    let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let mut out = reference::conv_silu(&inputs, &weights.conv);
    let query_scale = query_scale(dims);
    for head in 0..2 * dims.num_key_heads {
        let own = &mut out[head * dims.key_dim..][..dims.key_dim];
        let scale = if head < dims.num_key_heads {
            query_scale
        } else {
            1.0
        };
        own.copy_from_slice(&reference::l2_norm(own, 1e-6, scale));
    }
    out
}

fn query_scale(dims: &Dims) -> f32 {
    1.0 / (dims.key_dim as f32).sqrt()
}

fn expect(
    step: &Step,
    dims: &Dims,
    weights: &Weights,
    (projected, raw_gates, before): (&[f32], &[f32], &[f32]),
) -> Expected {
    let (heads, m, channels) = (dims.num_value_heads, step.num_rows(), dims.channels());
    let mut state = before.to_vec();
    let mut mixed = Vec::new();
    let mut gates = raw_gates.to_vec();
    for row in 0..m {
        let inputs = window(step, dims, projected, before, row);
        mixed.extend(convolved(dims, &inputs, weights));
        if let Some(write) = step.layout.state_write(row) {
            let kept = &mut state[write.0 as usize * dims.state_len()..][..dims.conv_len()];
            kept.copy_from_slice(&inputs[1..].concat());
        }
        let own = &mut gates[row * 2 * heads..][..2 * heads];
        for head in 0..heads {
            let (rate, bias) = (weights.rate[head], weights.bias[head]);
            (own[heads + head], own[head]) =
                reference::delta_gates(own[heads + head], own[head], rate, bias);
        }
    }
    let mut core = vec![0.0; m * dims.num_values()];
    let mut out = vec![0.0; m * dims.num_values()];
    for seq in 0..step.layout.num_seqs() {
        for head in 0..heads {
            let head_at = dims.conv_len() + head * dims.head_len();
            let mut own = step
                .layout
                .state_read(seq)
                .map_or(vec![0.0; dims.head_len()], |read| {
                    before[read.0 as usize * dims.state_len() + head_at..][..dims.head_len()]
                        .to_vec()
                });
            let key_head = head / (heads / dims.num_key_heads);
            for row in step.layout.rows(seq) {
                let mixed = &mixed[row * channels..][..channels];
                let values = &mixed[2 * dims.num_key_heads * dims.key_dim..];
                let result = reference::delta_step(
                    &mut own,
                    &mixed[key_head * dims.key_dim..][..dims.key_dim],
                    &mixed[(dims.num_key_heads + key_head) * dims.key_dim..][..dims.key_dim],
                    &values[head * dims.value_dim..][..dims.value_dim],
                    gates[row * 2 * heads + heads + head],
                    gates[row * 2 * heads + head],
                );
                let at = row * dims.num_values() + head * dims.value_dim;
                let gate = row * dims.width() + channels + head * dims.value_dim;
                let gate = &projected[gate..gate + dims.value_dim];
                let normed = reference::gated_rms_norm(&result, &weights.norm, gate, 1e-6);
                core[at..at + dims.value_dim].copy_from_slice(&result);
                out[at..at + dims.value_dim].copy_from_slice(&normed);
                if let Some(write) = step.layout.state_write(row) {
                    let at = write.0 as usize * dims.state_len() + head_at;
                    state[at..at + dims.head_len()].copy_from_slice(&own);
                }
            }
        }
    }
    Expected {
        mixed,
        gates,
        core,
        out,
        state,
    }
}

#[test]
fn a_delta_net_is_the_definition_and_writes_the_rows_that_are_named() {
    agree(2 * CASES, |case| {
        let dims = Dims::random(case);
        let step = match case.rng.below(4) {
            0 => Step::random(&mut case.rng, 80, 30),
            _ => Step::random(&mut case.rng, 80, 5),
        };
        check(case, &dims, &step);
    });
}

fn check(case: &mut Case, dims: &Dims, step: &Step) {
    let (heads, m) = (dims.num_value_heads, step.num_rows());
    let weights = Weights {
        conv: case.rng.floats(dims.taps * dims.channels(), 1.0),
        rate: case
            .rng
            .floats(heads, 3.0)
            .iter()
            .map(|x| x.abs())
            .collect(),
        bias: case.rng.floats(heads, 2.0),
        norm: case.rng.floats(dims.value_dim, 1.0),
    };
    let mut projected = case.rng.floats(m * dims.width(), 2.0);
    let mut gates = case.rng.floats(m * 2 * heads, 4.0);
    step.zero_padding(&mut projected, dims.width());
    step.zero_padding(&mut gates, 2 * heads);
    let before = case.rng.floats(step.num_state_rows * dims.state_len(), 1.0);
    let expected = expect(step, dims, &weights, (&projected, &gates, &before));
    let on_device = step.upload(case);
    let state = case.filled(&before);
    let projected = case.filled(&projected);
    let mixed = convolve(
        case,
        (dims, step, on_device),
        (state, projected),
        &weights.conv,
    );
    let found = case.read(mixed, m * dims.channels());
    case.same(&format!("convolution, {dims:?}"), &found, &expected.mixed);
    let kernel = DeltaGates {
        gates: case.filled(&gates),
        rate: case.filled(&weights.rate),
        bias: case.filled(&weights.bias),
        num_rows: m as i32,
        num_heads: heads as i32,
    };
    kernel.launch(&case.bench.queue).expect("a launch");
    let found = case.read(kernel.gates, m * 2 * heads);
    case.same("gates", &found, &expected.gates);
    let core = recur(case, (dims, step, on_device), (state, mixed, kernel.gates));
    let (real, len) = (
        step.layout.num_rows() * dims.num_values(),
        m * dims.num_values(),
    );
    let found = case.read(core, len);
    case.same("recurrence", &found[..real], &expected.core[..real]);
    let norm = GatedNorm {
        x: core,
        projected,
        weight: case.filled(&weights.norm),
        owners: on_device.owners,
        eps: 1e-6,
        width: dims.width() as i32,
        gate_at: dims.channels() as i32,
        value_dim: dims.value_dim as i32,
    };
    norm.launch(&case.bench.queue, m, heads).expect("a launch");
    let found = case.read(core, len);
    case.same("output norm", &found, &expected.out);
    let found = case.read(state, before.len());
    case.same(&format!("rows of state, {dims:?}"), &found, &expected.state);
}

fn convolve(
    case: &mut Case,
    (dims, step, on_device): (&Dims, &Step, OnDevice),
    (state, projected): (Ptr<f32>, Ptr<f32>),
    weights: &[f32],
) -> Ptr<f32> {
    let kernel = Convolve {
        mixed: case.unwritten(step.num_rows() * dims.channels()),
        state,
        projected,
        weights: case.filled(weights),
        owners: on_device.owners,
        first_rows: on_device.first_rows,
        state_reads: on_device.state_reads,
        state_writes: on_device.state_writes,
        query_scale: query_scale(dims),
        state_len: dims.state_len() as i32,
        width: dims.width() as i32,
        channels: dims.channels() as i32,
        taps: dims.taps as i32,
        num_key_heads: dims.num_key_heads as i32,
        key_dim: dims.key_dim as i32,
    };
    kernel
        .launch(&case.bench.queue, step.num_rows())
        .expect("a launch");
    kernel.mixed
}

fn recur(
    case: &mut Case,
    (dims, step, on_device): (&Dims, &Step, OnDevice),
    (state, mixed, gates): (Ptr<f32>, Ptr<f32>, Ptr<f32>),
) -> Ptr<f32> {
    let kernel = DeltaNet {
        core: case.unwritten(step.num_rows() * dims.num_values()),
        state,
        mixed,
        gates,
        first_rows: on_device.first_rows,
        query_lens: on_device.query_lens,
        state_reads: on_device.state_reads,
        state_writes: on_device.state_writes,
        state_len: dims.state_len() as i32,
        conv_len: dims.conv_len() as i32,
        channels: dims.channels() as i32,
        num_key_heads: dims.num_key_heads as i32,
        num_value_heads: dims.num_value_heads as i32,
        key_dim: dims.key_dim as i32,
        value_dim: dims.value_dim as i32,
    };
    kernel
        .launch(&case.bench.queue, step.padded_seqs())
        .expect("a launch");
    kernel.core
}

/// Any number at all: where exp, log1p, sigmoid and softplus meet their definitions.
#[test]
fn gates_of_any_numbers_are_the_definition() {
    agree(CASES, |case| {
        let (m, heads) = (200, 32);
        let wide = case.rng.flip();
        let float = |case: &mut Case| match wide {
            true => case.rng.finite_bits(),
            false => case.rng.float() * 110.0,
        };
        let gates: Vec<f32> = (0..m * 2 * heads).map(|_| float(case)).collect();
        let rate: Vec<f32> = (0..heads).map(|_| case.rng.float().abs() * 4.0).collect();
        let bias = case.rng.floats(heads, 1.0);
        let mut expected = gates.clone();
        for own in expected.chunks_exact_mut(2 * heads) {
            for head in 0..heads {
                (own[heads + head], own[head]) =
                    reference::delta_gates(own[heads + head], own[head], rate[head], bias[head]);
            }
        }
        let kernel = DeltaGates {
            gates: case.filled(&gates),
            rate: case.filled(&rate),
            bias: case.filled(&bias),
            num_rows: m as i32,
            num_heads: heads as i32,
        };
        kernel.launch(&case.bench.queue).expect("a launch");
        let found = case.read(kernel.gates, gates.len());
        case.same("gates", &found, &expected);
    });
}
