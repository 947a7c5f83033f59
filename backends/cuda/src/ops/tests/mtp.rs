//! What a drafting head is given, and what it keeps.

use super::step::Step;
use super::{CASES, agree};
use crate::memory::Ptr;
use crate::ops::mtp::{GatherRows, KeepRows, MtpEnter};
use lockstep_cpu::reference;
use lockstep_step::{BLOCK_LEN, NO_ID, Pos};

#[test]
fn pairs_follow_on_what_stands_before_them() {
    agree(CASES, |case| {
        let step = Step::random(&mut case.rng, 200, 8);
        let m = step.num_rows();
        let n = match case.rng.below(5) {
            0 => case.rng.between(4000, 5000),
            _ => case.rng.between(1, 300),
        };
        let (embedded, within) = (case.rng.floats(m * n, 2.0), case.rng.floats(m * n, 2.0));
        let own = case.rng.floats(step.padded_seqs() * n, 2.0);
        let kept = case
            .rng
            .floats(step.num_blocks * BLOCK_LEN as usize * n, 2.0);
        let (token_norm, hidden_norm) = (case.rng.floats(n, 1.0), case.rng.floats(n, 1.0));
        let has_own = case.rng.flip();
        let mut expected = vec![0.0; m * 2 * n];
        for row in 0..step.layout.num_rows() {
            let (seq, place) = step.owner(row).expect("a row of a sequence");
            let pos = step.layout.positions()[row];
            let before = if place > 0 {
                within[(row - 1) * n..row * n].to_vec()
            } else if has_own {
                own[seq * n..(seq + 1) * n].to_vec()
            } else if pos == 0 {
                vec![0.0; n]
            } else {
                let (block, offset) = step.layout.slot_at(seq, Pos(pos - 1));
                kept[(block.0 * BLOCK_LEN + offset) as usize * n..][..n].to_vec()
            };
            let pair = &mut expected[row * 2 * n..][..2 * n];
            let token = reference::rms_norm(&embedded[row * n..][..n], &token_norm, 1e-6);
            pair[..n].copy_from_slice(&token);
            pair[n..].copy_from_slice(&reference::rms_norm(&before, &hidden_norm, 1e-6));
        }
        let on_device = step.upload(case);
        let kernel = MtpEnter {
            pairs: case.unwritten(m * 2 * n),
            embedded: case.filled(&embedded),
            within: case.filled(&within),
            own: if has_own {
                case.filled(&own)
            } else {
                Ptr::null()
            },
            kept: case.filled(&kept),
            token_norm: case.filled(&token_norm),
            hidden_norm: case.filled(&hidden_norm),
            positions: on_device.positions,
            owners: on_device.owners,
            first_rows: on_device.first_rows,
            tables: on_device.tables,
            table_width: step.layout.table_width() as i32,
            eps: 1e-6,
            n: n as i32,
        };
        kernel.launch(&case.bench.queue, m).expect("a launch");
        let found = case.read(kernel.pairs, expected.len());
        case.same("pairs", &found, &expected);
    });
}

#[test]
fn rows_are_kept_by_slot_and_gathered_by_number() {
    agree(CASES, |case| {
        let step = Step::random(&mut case.rng, 200, 8);
        let (m, n) = (step.num_rows(), case.rng.between(1, 600));
        let x = case.rng.floats(m * n, 2.0);
        let before = case
            .rng
            .floats(step.num_blocks * BLOCK_LEN as usize * n, 2.0);
        let mut expected = before.clone();
        for (x, &slot) in x.chunks_exact(n).zip(step.layout.slots()) {
            if slot != NO_ID {
                expected[slot as usize * n..][..n].copy_from_slice(x);
            }
        }
        let on_device = step.upload(case);
        let keep = KeepRows {
            kept: case.filled(&before),
            x: case.filled(&x),
            slots: on_device.slots,
            n: n as i32,
        };
        keep.launch(&case.bench.queue, m).expect("a launch");
        let found = case.read(keep.kept, before.len());
        case.same("kept rows", &found, &expected);
        let rows: Vec<u32> = (0..case.rng.between(1, 40))
            .map(|_| {
                if case.rng.below(4) == 0 {
                    NO_ID
                } else {
                    case.rng.below(m) as u32
                }
            })
            .collect();
        let gather = GatherRows {
            out: case.unwritten(rows.len() * n),
            x: keep.x,
            rows: case.filled(&rows),
            n: n as i32,
        };
        gather
            .launch(&case.bench.queue, rows.len())
            .expect("a launch");
        let expected: Vec<f32> = rows
            .iter()
            .flat_map(|&row| match row {
                NO_ID => vec![0.0; n],
                row => x[row as usize * n..][..n].to_vec(),
            })
            .collect();
        let found = case.read(gather.out, expected.len());
        case.same("gathered rows", &found, &expected);
    });
}
