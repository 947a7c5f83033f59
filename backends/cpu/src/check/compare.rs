//! Figures of two arrays of the same shape. Computed in float64, since they judge float32.

/// How two arrays compare.
pub(super) struct Figures {
    pub(super) max_abs_error: f32,
    pub(super) max_logprob_error: f64,
    pub(super) cosine_median: f64,
    pub(super) cosine_min: f64,
    pub(super) argmax_equal: usize,
    pub(super) argmax_wrong: usize,
}

impl Figures {
    /// Compares rows of `width` values. NaN counts as an infinite error.
    pub(super) fn of(ours: &[f32], theirs: &[f32], width: usize, bound: f32) -> Figures {
        let mut figures = Figures {
            max_abs_error: 0.0,
            max_logprob_error: 0.0,
            cosine_median: 1.0,
            cosine_min: 1.0,
            argmax_equal: 0,
            argmax_wrong: 0,
        };
        let mut cosines = Vec::with_capacity(ours.len() / width);
        for (ours, theirs) in ours.chunks_exact(width).zip(theirs.chunks_exact(width)) {
            let (our_sum, their_sum) = (log_sum_exp(ours), log_sum_exp(theirs));
            figures.max_abs_error = figures.max_abs_error.max(max_abs_error(ours, theirs));
            for (&a, &b) in ours.iter().zip(theirs) {
                let error = ((f64::from(a) - our_sum) - (f64::from(b) - their_sum)).abs();
                if error > figures.max_logprob_error {
                    figures.max_logprob_error = error;
                }
            }
            cosines.push(cosine(ours, theirs));
            let ((our_best, _), (their_best, margin)) = (argmax(ours), argmax(theirs));
            if our_best == their_best {
                figures.argmax_equal += 1;
            } else if margin > bound {
                figures.argmax_wrong += 1;
            }
        }
        cosines.sort_by(f64::total_cmp);
        if let Some(&min) = cosines.first() {
            figures.cosine_min = min;
            figures.cosine_median = cosines[cosines.len() / 2];
        }
        figures
    }
}

/// The largest difference; infinite where one isn't a number.
fn max_abs_error(a: &[f32], b: &[f32]) -> f32 {
    let mut max = 0.0;
    for (&a, &b) in a.iter().zip(b) {
        let error = (a - b).abs();
        if error.is_nan() {
            return f32::INFINITY;
        }
        if error > max {
            max = error;
        }
    }
    max
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row
        .iter()
        .fold(f64::NEG_INFINITY, |max, &x| max.max(f64::from(x)));
    max + row
        .iter()
        .map(|&x| (f64::from(x) - max).exp())
        .sum::<f64>()
        .ln()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// The index of the highest value, the lowest one among equals, and by how much it leads.
#[inline(never)]
pub(super) fn argmax(row: &[f32]) -> (usize, f32) {
    let (mut best, mut second) = (0, f32::NEG_INFINITY);
    for (idx, &x) in row.iter().enumerate().skip(1) {
        if x > row[best] {
            (best, second) = (idx, row[best]);
        } else if x > second {
            second = x;
        }
    }
    (best, row[best] - second)
}

/// Whether two arrays are the same to the bit.
pub(super) fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_argmax_counts_only_beyond_the_margin() {
        let theirs = [1.0, 2.0, 0.0, 1.0, 1.00001, 0.0];
        let ours = [2.0, 1.0, 0.0, 1.00001, 1.0, 0.0];
        let figures = Figures::of(&ours, &theirs, 3, 1e-4);
        assert_eq!((figures.argmax_equal, figures.argmax_wrong), (0, 1));
        assert_eq!(figures.max_abs_error, 1.0);
    }

    #[test]
    fn nan_is_an_error_and_not_a_pass() {
        let figures = Figures::of(&[f32::NAN, 1.0], &[0.0, 1.0], 2, 1e-4);
        assert_eq!(figures.max_abs_error, f32::INFINITY);
    }

    #[test]
    fn argmax_takes_the_lowest_of_equals() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), (1, 0.0));
        assert_eq!(argmax(&[5.0, 3.0, 4.0]), (0, 1.0));
    }
}
