//! The few statistics that a benchmark states.

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

#[cfg(test)]
mod tests {
    use super::{median, quantile};

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
