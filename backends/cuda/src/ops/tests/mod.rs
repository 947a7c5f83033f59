//! Each kernel against its scalar definition, bit for bit, with threads in many orders. The emulation that this runs
//! on is chosen as `testing.rs` says; `planted.rs` builds it with a fault and requires that these tests see it.

mod attention;
mod delta;
mod draw;
mod linear;
mod mtp;
mod planted;
mod races;
mod rows;
mod sources;
mod step;

use crate::memory::{Pinned, Ptr, Region};
use crate::testing::{self, Bench};
use bytemuck::Pod;
use std::sync::{Mutex, PoisonError};

/// Cases of a test; each has a shape of its own and an order of threads of its own.
const CASES: u64 = 24;

/// One case of a test: a device with nothing on it, and numbers to fill it with.
struct Case {
    bench: Bench,
    rng: Rng,
    num_compared: usize,
}

/// Runs a test over its cases. One that compared nothing fails, and so does one that left a race.
fn agree(num_cases: u64, test: impl Fn(&mut Case)) {
    // The order of threads is one for the whole process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in 0..num_cases {
        let mut case = Case {
            bench: Bench::new(),
            rng: Rng(seed),
            num_compared: 0,
        };
        testing::set_seed(seed);
        let before = testing::num_races();
        test(&mut case);
        assert!(case.num_compared > 0, "case {seed} compared nothing");
        assert_eq!(testing::num_races() - before, 0, "races in case {seed}");
    }
}

impl Case {
    /// A buffer with these values.
    fn filled<T: Pod>(&mut self, values: &[T]) -> Ptr<T> {
        let filled = self
            .bench
            .memory
            .claim_filled(Region::Buffers, "input", values);
        filled.expect("memory of the case")
    }

    /// A buffer to be written: each byte is 0xff, which is no number and no id.
    fn unwritten<T: Pod>(&mut self, len: usize) -> Ptr<T> {
        let bytes = self.filled(&vec![0xffu8; (len * size_of::<T>()).max(1)]);
        bytes.cast()
    }

    /// What a buffer holds after all that was launched.
    fn read<T: Pod>(&self, from: Ptr<T>, len: usize) -> Vec<T> {
        let queue = &self.bench.queue;
        let mut to = Pinned::zeroed(queue.device(), len.max(1)).expect("pinned memory");
        queue
            .download("output", from, &mut to, len)
            .expect("a copy");
        queue.wait("the case").expect("kernels that ran");
        to.values()[..len].to_vec()
    }

    /// Compares floats by their bits. All that is not a number is one.
    fn same(&mut self, what: &str, found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len(), "{what}: another length");
        let bits = |x: f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
        let differs = |(found, expected): (&f32, &f32)| bits(*found) != bits(*expected);
        let pairs = || found.iter().zip(expected);
        if let Some(at) = pairs().position(differs) {
            let num_different = pairs().filter(|&pair| differs(pair)).count();
            panic!(
                "{what}: {num_different} of {} differ, the first at {at}: {} for {}",
                found.len(),
                found[at],
                expected[at]
            );
        }
        self.num_compared += found.len();
    }

    /// Compares values that are no floats.
    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: &[T], expected: &[T]) {
        assert_eq!(found.len(), expected.len(), "{what}: another length");
        let differs = found.iter().zip(expected).position(|(a, b)| a != b);
        if let Some(at) = differs {
            panic!("{what}: at {at} {:?} for {:?}", found[at], expected[at]);
        }
        self.num_compared += found.len();
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        lockstep_numerics::digest::mix64(self.0)
    }

    /// In `0..n`.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// In -1..1, not round.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.float() * scale).collect()
    }

    /// Any encoding of a finite number, subnormals and zeros of both signs included.
    fn finite_bits(&mut self) -> f32 {
        loop {
            let x = f32::from_bits(self.next() as u32);
            if x.is_finite() {
                return x;
            }
        }
    }

    fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i + 1));
        }
    }
}
