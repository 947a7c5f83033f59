//! Keys and values on their way into the cache, and attention over it.

use super::step::{OnDevice, Step};
use super::{CASES, Case, agree};
use crate::memory::Ptr;
use crate::ops::attention::{Attention, AttentionBlocks, AttentionMerge};
use crate::ops::place_kv::PlaceKv;
use lockstep_cpu::reference;
use lockstep_numerics::rotary::{Rotary, RotaryScaling};
use lockstep_step::{BLOCK_LEN, Pos};

const BLOCK: usize = BLOCK_LEN as usize;

/// Heads of an attention layer.
#[derive(Clone, Copy, Debug)]
struct Heads {
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    gated: bool,
}

impl Heads {
    fn random(case: &mut Case) -> Heads {
        let num_kv_heads = case.rng.between(1, 3);
        let group = case.rng.pick(&[1, 2, 3, 4, 6, 8, 12]);
        Heads {
            num_heads: num_kv_heads * group,
            num_kv_heads,
            head_dim: case.rng.pick(&[8, 16, 24, 64, 80, 128, 256]),
            gated: case.rng.flip(),
        }
    }

    fn query_stride(&self) -> usize {
        self.head_dim * if self.gated { 2 } else { 1 }
    }

    fn width(&self) -> usize {
        self.num_heads * self.query_stride() + 2 * self.num_kv_heads * self.head_dim
    }

    /// Where a head's keys of a block begin: (block, kv head, head_dim, 64), and values (64, head_dim) likewise.
    fn page(&self, block: usize, kv_head: usize) -> usize {
        (block * self.num_kv_heads + kv_head) * self.head_dim * BLOCK
    }
}

/// Keys and values of one layer, as the host sees them.
struct Cache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Cache {
    /// Unwritten: not a number.
    fn new(heads: &Heads, num_blocks: usize) -> Cache {
        let len = heads.page(num_blocks, 0);
        Cache {
            keys: vec![f32::NAN; len],
            values: vec![f32::NAN; len],
        }
    }

    fn write(&mut self, heads: &Heads, slot: (usize, usize), kv_head: usize, kv: (&[f32], &[f32])) {
        let (page, d) = (heads.page(slot.0, kv_head), heads.head_dim);
        for (at, (&key, &value)) in kv.0.iter().zip(kv.1).enumerate() {
            self.keys[page + at * BLOCK + slot.1] = key;
            self.values[page + slot.1 * d + at] = value;
        }
    }

    fn key(&self, heads: &Heads, slot: (usize, usize), kv_head: usize) -> Vec<f32> {
        let page = heads.page(slot.0, kv_head);
        let at = |d| self.keys[page + d * BLOCK + slot.1];
        (0..heads.head_dim).map(at).collect()
    }

    fn value(&self, heads: &Heads, slot: (usize, usize), kv_head: usize) -> Vec<f32> {
        let page = heads.page(slot.0, kv_head) + slot.1 * heads.head_dim;
        self.values[page..page + heads.head_dim].to_vec()
    }
}

fn slot_at(step: &Step, seq: usize, pos: usize) -> (usize, usize) {
    let (block, offset) = step.layout.slot_at(seq, Pos(pos as u32));
    (block.0 as usize, offset as usize)
}

#[test]
fn keys_and_values_find_their_place() {
    agree(CASES, |case| {
        let heads = Heads::random(case);
        let step = Step::random(&mut case.rng, 200, 20);
        let (m, d, width) = (step.num_rows(), heads.head_dim, heads.width());
        let projected = case.rng.floats(m * width, 2.0);
        let normed = case.rng.flip();
        let norms = [case.rng.floats(d, 1.0), case.rng.floats(d, 1.0)];
        let pairs = case.rng.between(1, d / 2);
        let table = Rotary::new(1e4, 2 * pairs, RotaryScaling::Default).table(320);
        let mut cache = Cache::new(&heads, step.num_blocks);
        let mut expected = projected.clone();
        for row in 0..step.layout.num_rows() {
            let (cos, sin) = table.row(step.layout.positions()[row] as usize);
            let prepare = |head: &[f32], norm: &[f32]| {
                let head = match normed {
                    true => reference::rms_norm(head, norm, 1e-6),
                    false => head.to_vec(),
                };
                reference::rotate(&head, cos, sin)
            };
            let own = &mut expected[row * width..][..width];
            for head in 0..heads.num_heads {
                let query = &mut own[head * heads.query_stride()..][..d];
                query.copy_from_slice(&prepare(query, &norms[0]));
            }
            let (block, offset) = step.layout.slot(row).expect("a row with a slot");
            for kv_head in 0..heads.num_kv_heads {
                let at = heads.num_heads * heads.query_stride() + kv_head * d;
                let key = prepare(&own[at..at + d], &norms[1]);
                let value = &own[at + heads.num_kv_heads * d..][..d];
                let slot = (block.0 as usize, offset as usize);
                cache.write(&heads, slot, kv_head, (&key, value));
            }
        }
        let on_device = step.upload(case);
        let norm = |case: &mut Case, which: usize| match normed {
            true => case.filled(&norms[which]),
            false => Ptr::null(),
        };
        let unwritten = Cache::new(&heads, step.num_blocks);
        let kernel = PlaceKv {
            projected: case.filled(&projected),
            keys: case.filled(&unwritten.keys),
            values: case.filled(&unwritten.values),
            positions: on_device.positions,
            slots: on_device.slots,
            cos: case.filled(&table.cos),
            sin: case.filled(&table.sin),
            query_norm: norm(case, 0),
            key_norm: norm(case, 1),
            eps: 1e-6,
            width: width as i32,
            num_heads: heads.num_heads as i32,
            num_kv_heads: heads.num_kv_heads as i32,
            head_dim: d as i32,
            query_stride: heads.query_stride() as i32,
            pairs: pairs as i32,
        };
        kernel.launch(&case.bench.queue, m).expect("a launch");
        let found = case.read(kernel.projected, projected.len());
        // Keys are not needed in place.
        let queries = heads.num_heads * heads.query_stride();
        for (row, (found, expected)) in found
            .chunks_exact(width)
            .zip(expected.chunks_exact(width))
            .enumerate()
        {
            let what = format!("queries of row {row}, {heads:?}");
            case.same(&what, &found[..queries], &expected[..queries]);
        }
        let found = case.read(kernel.keys, cache.keys.len());
        case.same("keys", &found, &cache.keys);
        let found = case.read(kernel.values, cache.values.len());
        case.same("values", &found, &cache.values);
    });
}

/// What both forms of attention are tried on.
struct Scene {
    heads: Heads,
    step: Step,
    on_device: OnDevice,
    projected: Ptr<f32>,
    keys: Ptr<f32>,
    values: Ptr<f32>,
    num_skipped: usize,
    scale: f32,
    /// (rows, heads, head_dim)
    expected: Vec<f32>,
}

fn scene(case: &mut Case, step: Step) -> Scene {
    let heads = Heads::random(case);
    let (m, d, width) = (step.num_rows(), heads.head_dim, heads.width());
    let projected = case.rng.floats(m * width, 1.5);
    let num_skipped = case.rng.below(2);
    let scale = 1.0 / (d as f32).sqrt();
    let mut cache = Cache::new(&heads, step.num_blocks);
    for seq in 0..step.layout.num_seqs() {
        let last = step.layout.rows(seq).end - 1;
        for pos in 0..=step.layout.positions()[last] as usize {
            for kv_head in 0..heads.num_kv_heads {
                let (key, value) = (case.rng.floats(d, 2.0), case.rng.floats(d, 2.0));
                cache.write(&heads, slot_at(&step, seq, pos), kv_head, (&key, &value));
            }
        }
    }
    let mut expected = vec![0.0; m * heads.num_heads * d];
    for row in 0..step.layout.num_rows() {
        let (seq, _) = step.owner(row).expect("a row of a sequence");
        let num_positions = step.layout.positions()[row] as usize + 1;
        for kv_head in 0..heads.num_kv_heads {
            let slots = (0..num_positions).map(|pos| slot_at(&step, seq, pos));
            let slots: Vec<_> = slots.collect();
            let keys: Vec<_> = slots
                .iter()
                .map(|&slot| cache.key(&heads, slot, kv_head))
                .collect();
            let values: Vec<_> = slots
                .iter()
                .map(|&slot| cache.value(&heads, slot, kv_head))
                .collect();
            let group = heads.num_heads / heads.num_kv_heads;
            for head in kv_head * group..(kv_head + 1) * group {
                let own = &projected[row * width + head * heads.query_stride()..];
                let mut out = reference::attention(
                    &own[..d],
                    &keys,
                    &values,
                    num_positions,
                    num_skipped,
                    scale,
                );
                if heads.gated {
                    out = reference::sigmoid_mul(&out, &own[d..2 * d]);
                }
                expected[(row * heads.num_heads + head) * d..][..d].copy_from_slice(&out);
            }
        }
    }
    Scene {
        heads,
        on_device: step.upload(case),
        step,
        projected: case.filled(&projected),
        keys: case.filled(&cache.keys),
        values: case.filled(&cache.values),
        num_skipped,
        scale,
        expected,
    }
}

fn attend(case: &mut Case, scene: &Scene) {
    let (heads, on_device) = (scene.heads, scene.on_device);
    let kernel = Attention {
        out: case.unwritten(scene.expected.len()),
        projected: scene.projected,
        keys: scene.keys,
        values: scene.values,
        positions: on_device.positions,
        owners: on_device.owners,
        tables: on_device.tables,
        table_width: scene.step.layout.table_width() as i32,
        scale: scene.scale,
        width: heads.width() as i32,
        num_heads: heads.num_heads as i32,
        num_kv_heads: heads.num_kv_heads as i32,
        head_dim: heads.head_dim as i32,
        query_stride: heads.query_stride() as i32,
        gated: i32::from(heads.gated),
        num_skipped: scene.num_skipped as i32,
    };
    kernel
        .launch(&case.bench.queue, scene.step.num_rows())
        .expect("a launch");
    let found = case.read(kernel.out, scene.expected.len());
    case.same(&format!("attention, {heads:?}"), &found, &scene.expected);
}

fn attend_side_by_side(case: &mut Case, scene: &Scene) {
    let (heads, on_device, m) = (scene.heads, scene.on_device, scene.step.num_rows());
    let blocks_max = scene.step.layout.table_width();
    let places = m * heads.num_heads * blocks_max;
    let first = AttentionBlocks {
        maxima: case.unwritten(places),
        sums: case.unwritten(places),
        mixed: case.unwritten(places * heads.head_dim),
        projected: scene.projected,
        keys: scene.keys,
        values: scene.values,
        positions: on_device.positions,
        owners: on_device.owners,
        tables: on_device.tables,
        table_width: blocks_max as i32,
        scale: scene.scale,
        width: heads.width() as i32,
        num_heads: heads.num_heads as i32,
        num_kv_heads: heads.num_kv_heads as i32,
        head_dim: heads.head_dim as i32,
        query_stride: heads.query_stride() as i32,
        num_skipped: scene.num_skipped as i32,
        blocks_max: blocks_max as i32,
    };
    first.launch(&case.bench.queue, m).expect("a launch");
    let second = AttentionMerge {
        out: case.unwritten(scene.expected.len()),
        maxima: first.maxima,
        sums: first.sums,
        mixed: first.mixed,
        projected: scene.projected,
        positions: on_device.positions,
        owners: on_device.owners,
        width: first.width,
        num_heads: first.num_heads,
        head_dim: first.head_dim,
        query_stride: first.query_stride,
        gated: i32::from(heads.gated),
        blocks_max: first.blocks_max,
    };
    second.launch(&case.bench.queue, m).expect("a launch");
    let found = case.read(second.out, scene.expected.len());
    case.same(
        &format!("attention side by side, {heads:?}"),
        &found,
        &scene.expected,
    );
}

#[test]
fn attention_is_the_definition_in_both_forms() {
    agree(CASES, |case| {
        let step = Step::random(&mut case.rng, 200, 5);
        let scene = scene(case, step);
        attend(case, &scene);
        attend_side_by_side(case, &scene);
    });
}

#[test]
fn attention_over_long_sequences_is_the_definition() {
    agree(2, |case| {
        let starts = [
            (case.rng.between(1200, 1990) as u32, 2),
            (63, 1),
            (64, 1),
            (0, 1),
        ];
        let step = Step::of(&mut case.rng, &starts);
        let scene = scene(case, step);
        attend(case, &scene);
        attend_side_by_side(case, &scene);
    });
}
