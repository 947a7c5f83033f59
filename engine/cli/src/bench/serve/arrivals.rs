//! When requests of an open loop arrive: as in a Poisson process, so independently of each other and of
//! the answers. It must never look at a clock or at an earlier answer: the same seed and rate give the same
//! arrivals.

use lockstep_numerics::{double::log, draw_u64};

/// Mixed into the seed, so that arrivals share no draws with the choice of requests.
const PURPOSE: u64 = 0x6172_7269_7661_6c73;

/// Seconds after the start at which `num` requests arrive, at `rate` a second on average. The first
/// arrives after a gap like any other.
pub fn arrivals(rate: f64, num: u64, seed: u64) -> Vec<f64> {
    let mut seconds = 0.0;
    let next = |position| {
        // In (0, 1], so that its logarithm is finite.
        let share = ((draw_u64(seed ^ PURPOSE, position) >> 11) + 1) as f64 / (1u64 << 53) as f64;
        seconds -= log(share) / rate;
        seconds
    };
    (0..num).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::arrivals;

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let first = arrivals(3.0, 100, 7);
        assert_eq!(first, arrivals(3.0, 100, 7));
        assert_ne!(first, arrivals(3.0, 100, 8));
        // More requests only add to what was there.
        assert_eq!(first, arrivals(3.0, 200, 7)[..100]);
    }

    #[test]
    fn a_rate_only_stretches_time() {
        let slow = arrivals(1.0, 50, 1);
        for (slow, fast) in slow.iter().zip(arrivals(4.0, 50, 1)) {
            assert!((slow / 4.0 - fast).abs() < 1e-9, "{slow} {fast}");
        }
    }

    #[test]
    fn gaps_are_exponential() {
        let times = arrivals(2.0, 10_000, 1);
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap >= 0.0));
        let num = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / num;
        let variance = gaps
            .iter()
            .map(|gap| (gap - mean) * (gap - mean))
            .sum::<f64>()
            / num;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        // The standard deviation of such gaps is their mean.
        assert!((variance - 0.25).abs() < 0.02, "{variance}");
        let long = gaps.iter().filter(|gap| **gap > 0.5).count() as f64 / num;
        assert!((long - 0.3679).abs() < 0.02, "{long}");
    }
}
