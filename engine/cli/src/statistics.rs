//! The few statistics that a benchmark or a battery states.

pub mod exact;

/// The middle value, or the mean of the two in the middle.
///
/// # Panics
/// If there is none: a benchmark that measured nothing has no result.
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

/// The smallest value that at least this share of all values does not exceed.
///
/// # Panics
/// If there is no value: a benchmark that measured nothing has no result.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The mean.
///
/// # Panics
/// If there is no value: a benchmark that measured nothing has no result.
pub fn mean(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of values that count as often as their weights say; none if no weight is above zero.
pub fn weighted_mean(values_and_weights: &[(f64, f64)]) -> Option<f64> {
    let all: f64 = values_and_weights.iter().map(|(_, weight)| weight).sum();
    let sum: f64 = values_and_weights
        .iter()
        .map(|(value, weight)| value * weight)
        .sum();
    (all > 0.0).then(|| sum / all)
}

#[cfg(test)]
mod tests {
    use super::{mean, median, quantile, weighted_mean};

    #[test]
    fn means() {
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(weighted_mean(&[(1.0, 3.0), (5.0, 1.0)]), Some(2.0));
        assert_eq!(weighted_mean(&[(1.0, 0.0)]), None);
        assert_eq!(weighted_mean(&[]), None);
    }

    #[test]
    fn shares() {
        let values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 500.0);
        assert_eq!(quantile(&values, 0.999), 999.0);
        assert_eq!(quantile(&values, 1.0), 1000.0);
        assert_eq!(quantile(&values, 0.0), 1.0);
    }

    #[test]
    fn middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
