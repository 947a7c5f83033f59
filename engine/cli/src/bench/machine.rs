//! What this machine can do at most: read bandwidth of memory, and int8 multiply-adds per second. Measured
//! beside every benchmark, since both change with the neighbours. It must never use the engine's kernels:
//! they are what is compared with these figures.

use crate::statistics::median;
use std::{hint::black_box, sync::Barrier, thread, time::Instant};

/// Bytes that are read: far more than any cache holds.
const BUFFER_BYTES: usize = 1 << 30;
const ALIGNMENT: usize = 2 << 20;

/// Memory in large pages, where the system grants them: with small ones a single thread reads a third
/// less, and weights are held in large ones too.
pub struct Buffer {
    start: *mut libc::c_void,
    mapped_bytes: usize,
    words: usize,
}

// SAFETY: the mapping belongs to this value alone and is only read after it was filled.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A filled gibibyte, or nothing if the machine has not so much memory to spare.
    pub fn new() -> Option<Buffer> {
        let mapped_bytes = BUFFER_BYTES + ALIGNMENT;
        // SAFETY: an anonymous private mapping at an address of the system's choice touches no memory
        // of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let buffer = Buffer {
            start,
            mapped_bytes,
            words: BUFFER_BYTES / 8,
        };
        // SAFETY: the range is the mapping made above. The advice may be refused; pages are then small.
        unsafe { libc::madvise(start, mapped_bytes, libc::MADV_HUGEPAGE) };
        let first = buffer.first_word();
        for idx in 0..buffer.words {
            // SAFETY: `first` is aligned and `words` of it lie inside the mapping, which nothing else
            // can see yet.
            unsafe { first.add(idx).write(idx as u64) };
        }
        Some(buffer)
    }

    fn first_word(&self) -> *mut u64 {
        let offset = self.start.align_offset(ALIGNMENT);
        self.start.wrapping_byte_add(offset).cast()
    }

    fn words(&self) -> &[u64] {
        // SAFETY: `first_word` is aligned, `words` of it lie inside the mapping, are initialised, and are
        // never written again.
        unsafe { std::slice::from_raw_parts(self.first_word(), self.words) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping that `new` made; no slice of it outlives `self`.
        unsafe { libc::munmap(self.start, self.mapped_bytes) };
    }
}

/// Gigabytes per second that `num_threads` threads read together, median of `num_rounds` passes.
pub fn read_bandwidth(buffer: &Buffer, num_threads: usize, num_rounds: usize) -> f64 {
    let share = buffer.words().len() / num_threads;
    let times = timed_rounds(num_threads, num_rounds, |thread| {
        let own = &buffer.words()[thread * share..(thread + 1) * share];
        black_box(sum(own));
    });
    (share * num_threads * 8) as f64 / median(&times) / 1e9
}

/// Billions of int8 operations (two per multiply-add) per second of `num_threads` threads together, and
/// the instruction that was used.
pub fn int8_peak(num_threads: usize, num_rounds: usize) -> (f64, &'static str) {
    let (dot, ops_per_call, name) = dot_loop();
    let times = timed_rounds(num_threads, num_rounds, |_| {
        black_box(dot());
    });
    (
        (ops_per_call * num_threads) as f64 / median(&times) / 1e9,
        name,
    )
}

/// Seconds of each round, from the first thread's start to the last one's end: threads that the system runs
/// one after the other must not look like two at once.
fn timed_rounds(num_threads: usize, num_rounds: usize, work: impl Fn(usize) + Sync) -> Vec<f64> {
    let barrier = Barrier::new(num_threads);
    let mut rounds: Vec<Option<(Instant, Instant)>> = vec![None; num_rounds];
    thread::scope(|scope| {
        let handles: Vec<_> = (0..num_threads)
            .map(|thread| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    let mut times = Vec::with_capacity(num_rounds);
                    for _ in 0..num_rounds {
                        barrier.wait();
                        let start = Instant::now();
                        work(thread);
                        times.push((start, Instant::now()));
                    }
                    times
                })
            })
            .collect();
        for handle in handles {
            // A thread that only adds numbers has nothing to panic about.
            let times = handle.join().unwrap_or_default();
            for (round, (start, end)) in rounds.iter_mut().zip(times) {
                let (first, last) = round.unwrap_or((start, end));
                *round = Some((first.min(start), last.max(end)));
            }
        }
    });
    let seconds = |(first, last): (Instant, Instant)| last.duration_since(first).as_secs_f64();
    rounds.into_iter().flatten().map(seconds).collect()
}

fn sum(words: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was just found.
            return unsafe { x86::sum_avx512(words) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just found.
            return unsafe { x86::sum_avx2(words) };
        }
    }
    words.iter().fold(0, |sum, word| sum ^ word)
}

/// A loop of int8 dot products that stays in registers, its operations per call, and its name.
fn dot_loop() -> (fn() -> i32, usize, &'static str) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512f") {
            // SAFETY: the features were just found.
            let dot = || unsafe { x86::dot_vnni() };
            return (
                dot,
                x86::DOT_ROUNDS * x86::ACCUMULATORS * 64 * 2,
                "avx512 vpdpbusd",
            );
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just found.
            let dot = || unsafe { x86::dot_avx2() };
            return (
                dot,
                x86::DOT_ROUNDS * x86::ACCUMULATORS * 32 * 2,
                "avx2 vpmaddubsw",
            );
        }
    }
    (dot_scalar, SCALAR_ROUNDS * 2, "scalar")
}

const SCALAR_ROUNDS: usize = 1 << 24;

fn dot_scalar() -> i32 {
    let (a, b) = (black_box(3i8), black_box(5i8));
    (0..SCALAR_ROUNDS as i32).fold(0, |sum, idx| {
        sum.wrapping_add(i32::from(a) * i32::from(b ^ idx as i8))
    })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::{arch::x86_64::*, hint::black_box};

    /// Independent sums: enough to hide the latency of any of the instructions.
    pub const ACCUMULATORS: usize = 12;
    pub const DOT_ROUNDS: usize = 1 << 21;

    #[target_feature(enable = "avx512f")]
    pub fn sum_avx512(words: &[u64]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); 8];
        let (chunks, rest) = words.as_chunks::<64>();
        for chunk in chunks {
            for (idx, sum) in sums.iter_mut().enumerate() {
                // SAFETY: eight loads of eight words each lie inside the chunk of 64.
                let loaded = unsafe { _mm512_loadu_si512(chunk.as_ptr().add(idx * 8).cast()) };
                *sum = _mm512_xor_si512(*sum, loaded);
            }
        }
        let all = sums
            .into_iter()
            .fold(_mm512_setzero_si512(), |a, b| _mm512_xor_si512(a, b));
        rest.iter()
            .fold(_mm512_reduce_add_epi64(all) as u64, |sum, word| sum ^ word)
    }

    #[target_feature(enable = "avx2")]
    pub fn sum_avx2(words: &[u64]) -> u64 {
        let mut sums = [_mm256_setzero_si256(); 8];
        let (chunks, rest) = words.as_chunks::<32>();
        for chunk in chunks {
            for (idx, sum) in sums.iter_mut().enumerate() {
                // SAFETY: eight loads of four words each lie inside the chunk of 32.
                let loaded = unsafe { _mm256_loadu_si256(chunk.as_ptr().add(idx * 4).cast()) };
                *sum = _mm256_xor_si256(*sum, loaded);
            }
        }
        let all = sums
            .into_iter()
            .fold(_mm256_setzero_si256(), |a, b| _mm256_xor_si256(a, b));
        rest.iter()
            .fold(_mm256_extract_epi64::<0>(all) as u64, |sum, word| {
                sum ^ word
            })
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn dot_vnni() -> i32 {
        let mut sums = [_mm512_setzero_si512(); ACCUMULATORS];
        let (a, b) = (
            _mm512_set1_epi8(black_box(3)),
            _mm512_set1_epi8(black_box(-5)),
        );
        for _ in 0..DOT_ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        sums.into_iter()
            .fold(0, |all, sum| all ^ _mm512_reduce_add_epi32(sum))
    }

    #[target_feature(enable = "avx2")]
    pub fn dot_avx2() -> i32 {
        let mut sums = [_mm256_setzero_si256(); ACCUMULATORS];
        let (a, ones) = (_mm256_set1_epi8(black_box(3)), _mm256_set1_epi16(1));
        let mut b = _mm256_set1_epi8(black_box(-5));
        for _ in 0..DOT_ROUNDS {
            for sum in &mut sums {
                let pairs = _mm256_maddubs_epi16(a, b);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
            // Without a change the products would be computed once, before the loop.
            b = _mm256_xor_si256(b, ones);
        }
        sums.into_iter()
            .fold(0, |all, sum| all ^ _mm256_extract_epi32::<0>(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sum_reads_every_word() {
        for len in [0, 1, 63, 64, 65, 1000] {
            let mut words: Vec<u64> = vec![0; len];
            let zero = sum(&words);
            for idx in [0, len / 2, len.saturating_sub(1)] {
                if len > 0 {
                    words[idx] = 0x1234;
                    assert_ne!(sum(&words), zero, "word {idx} of {len}");
                    words[idx] = 0;
                }
            }
        }
    }

    #[test]
    fn peak_is_a_speed() {
        let (peak, name) = int8_peak(1, 1);
        assert!(peak > 0.0 && peak.is_finite(), "{peak} by {name}");
    }
}
