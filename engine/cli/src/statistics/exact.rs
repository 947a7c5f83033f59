//! Exact statistics of counts: binomial tails, Clopper-Pearson intervals and Fisher's test. No approximation by
//! a normal distribution, and no logarithm: terms are ratios of their neighbours, counted from the largest. It
//! must never round in favour of a claim.

/// The rate that would be wrong of intervals and bounds: they hold with 95 %.
const ALPHA: f64 = 0.05;

/// Halvings of an interval until its ends are neighbours or as good as that.
const HALVINGS: u32 = 64;

/// Terms this much smaller than the largest add nothing.
const NEGLIGIBLE: f64 = 1e-300;

/// Tables are as likely as another up to this share, so that rounding parts none that are equal.
const EQUALLY_LIKELY: f64 = 1.0 + 1e-7;

/// A range of rates, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lowest rate.
    pub low: f64,
    /// The highest rate.
    pub high: f64,
}

/// The chance of at most `k` of `n`, each with a chance of `p`.
pub fn binomial_at_most(k: u64, n: u64, p: f64) -> f64 {
    if k >= n || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let mode = (((n + 1) as f64 * p) as u64).min(n);
    let odds = p / (1.0 - p);
    let (mut inside, mut outside) = (0.0, 0.0);
    let mut add = |at: u64, term: f64| match at <= k {
        true => inside += term,
        false => outside += term,
    };
    add(mode, 1.0);
    let mut term = 1.0;
    for at in mode..n {
        term *= (n - at) as f64 / (at + 1) as f64 * odds;
        add(at + 1, term);
        if term < NEGLIGIBLE {
            break;
        }
    }
    term = 1.0;
    for at in (1..=mode).rev() {
        term *= at as f64 / (n - at + 1) as f64 / odds;
        add(at - 1, term);
        if term < NEGLIGIBLE {
            break;
        }
    }
    inside / (inside + outside)
}

/// The chance of at least `k` of `n`, each with a chance of `p`.
pub fn binomial_at_least(k: u64, n: u64, p: f64) -> f64 {
    // The same counted from the other side, so that a small chance keeps its digits.
    match k.min(n + 1) {
        0 => 1.0,
        k if k > n => 0.0,
        k => binomial_at_most(n - k, n, 1.0 - p),
    }
}

/// The highest rate at which `k` of `n` or fewer still have a chance of `alpha`: a bound from above that is
/// wrong with a chance of at most `alpha`.
pub fn upper_bound(k: u64, n: u64, alpha: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    halve(|p| binomial_at_most(k, n, p) > alpha).1
}

/// The lowest rate at which `k` of `n` or more still have a chance of `alpha`.
pub fn lower_bound(k: u64, n: u64, alpha: f64) -> f64 {
    if k == 0 || n == 0 {
        return 0.0;
    }
    halve(|p| binomial_at_least(k, n, p) <= alpha).0
}

/// The last rate of which something holds and the first of which it doesn't, where it holds of the lower ones.
fn halve(holds: impl Fn(f64) -> bool) -> (f64, f64) {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        match holds(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    (low, high)
}

/// The two-sided interval of Clopper and Pearson: 2.5 % on either side.
pub fn clopper_pearson(k: u64, n: u64) -> Interval {
    Interval {
        low: lower_bound(k, n, ALPHA / 2.0),
        high: upper_bound(k, n, ALPHA / 2.0),
    }
}

/// The interval that is stated of `k` of `n`: of Clopper and Pearson; but where nothing or everything was seen
/// there is one side only, which gets all 5 %. So 0 of 84 bounds a rate below 3.5 %.
pub fn stated_interval(k: u64, n: u64) -> Interval {
    match k {
        _ if n == 0 => Interval {
            low: 0.0,
            high: 1.0,
        },
        0 => Interval {
            low: 0.0,
            high: upper_bound(0, n, ALPHA),
        },
        k if k == n => Interval {
            low: lower_bound(n, n, ALPHA),
            high: 1.0,
        },
        k => clopper_pearson(k, n),
    }
}

/// Fisher's exact test of the table `a b / c d`, two-sided: the chance, with these sums, of a table that is no
/// more likely than this one.
pub fn fisher_two_sided(a: u64, b: u64, c: u64, d: u64) -> f64 {
    let (row, other_row, column) = (a + b, c + d, a + c);
    let first = column.saturating_sub(other_row);
    let last = row.min(column);
    // Of tables with `x` in the first place, each from the one before it.
    let ratio = |x: u64| {
        let up = (row - x) as f64 * (column - x) as f64;
        up / ((x + 1) as f64 * (other_row + x + 1 - column) as f64)
    };
    let total = (row + other_row) as f64 + 2.0;
    let mode = ((row + 1) as f64 * (column + 1) as f64 / total) as u64;
    let mode = mode.clamp(first, last);
    let mut terms = vec![(mode, 1.0)];
    let mut term = 1.0;
    for x in mode..last {
        term *= ratio(x);
        terms.push((x + 1, term));
    }
    term = 1.0;
    for x in (first..mode).rev() {
        term /= ratio(x);
        terms.push((x, term));
    }
    let own = terms.iter().find(|(x, _)| *x == a).map_or(0.0, |(_, t)| *t);
    let limit = own * EQUALLY_LIKELY;
    let sum: f64 = terms.iter().map(|(_, term)| term).sum();
    let unlikely = terms.iter().filter(|(_, term)| *term <= limit);
    (unlikely.map(|(_, term)| term).sum::<f64>() / sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64, places: i32) -> bool {
        (value - expected).abs() < 0.51 * 10_f64.powi(-places)
    }

    #[test]
    fn tails_of_small_numbers_are_those_counted_by_hand() {
        // Coins: 1, 4, 6, 4, 1 of 16.
        let sums = [1.0, 5.0, 11.0, 15.0, 16.0];
        for (k, sum) in sums.into_iter().enumerate() {
            let k = k as u64;
            assert!(near(binomial_at_most(k, 4, 0.5), sum / 16.0, 14));
            assert!(near(binomial_at_least(4 - k, 4, 0.5), sum / 16.0, 14));
        }
        assert_eq!(binomial_at_least(5, 4, 0.5), 0.0);
        assert_eq!(binomial_at_most(2, 4, 0.0), 1.0);
        assert_eq!(binomial_at_most(2, 4, 1.0), 0.0);
        for n in [1, 7, 84, 1000, 100_000] {
            for p in [1e-9, 0.001, 0.3, 0.5, 0.97] {
                for k in [0, 1, n / 3, n / 2, n - 1] {
                    let sum = binomial_at_most(k, n, p) + binomial_at_least(k + 1, n, p);
                    assert!(near(sum, 1.0, 11), "{k} of {n} at {p}: {sum}");
                }
            }
        }
    }

    #[test]
    fn intervals_are_the_published_ones() {
        // As R's binom.test gives them.
        let rows = [
            (3, 10, 0.066_739_51, 0.652_452_9),
            (5, 10, 0.187_086_0, 0.812_914_0),
            (7, 20, 0.153_909_2, 0.592_188_5),
            (1, 100, 0.000_253_1, 0.054_459_4),
            (0, 10, 0.0, 0.308_497_1),
            (10, 10, 0.691_502_9, 1.0),
        ];
        for (k, n, low, high) in rows {
            let found = clopper_pearson(k, n);
            assert!(near(found.low, low, 7), "{k} of {n}: {found:?}");
            assert!(near(found.high, high, 7), "{k} of {n}: {found:?}");
        }
    }

    #[test]
    fn nothing_seen_is_a_bound_from_one_side() {
        // (1 - p)^n = 0.05: the rule of three, exactly.
        for (n, high) in [
            (1, 0.95),
            (10, 0.258_865_5),
            (59, 0.049_508),
            (84, 0.035_035),
        ] {
            let found = stated_interval(0, n);
            assert_eq!(found.low, 0.0);
            assert!(near(found.high, high, 6), "{n}: {found:?}");
            let mirrored = stated_interval(n, n);
            assert_eq!(mirrored.high, 1.0);
            assert!(near(mirrored.low, 1.0 - high, 6), "{n}: {mirrored:?}");
        }
        assert_eq!(stated_interval(3, 10), clopper_pearson(3, 10));
        let nothing = stated_interval(0, 0);
        assert_eq!((nothing.low, nothing.high), (0.0, 1.0));
    }

    #[test]
    fn intervals_cover_as_often_as_they_say() {
        for n in [5, 20, 84] {
            for step in 1..40 {
                let p = f64::from(step) / 40.0;
                let chance = |k: u64| match k {
                    0 => binomial_at_most(0, n, p),
                    k => binomial_at_most(k, n, p) - binomial_at_most(k - 1, n, p),
                };
                let covers = |k: &u64| {
                    let found = clopper_pearson(*k, n);
                    found.low <= p && p <= found.high
                };
                let covered: f64 = (0..=n).filter(covers).map(chance).sum();
                assert!(covered >= 0.95 - 1e-9, "{n} at {p}: {covered}");
            }
        }
    }

    #[test]
    fn fisher_is_the_published_test() {
        let rows = [
            // The lady tasting tea.
            ((3, 1, 1, 3), 0.485_714_3),
            // Convictions of twins, as in R's help page of fisher.test.
            ((2, 15, 10, 3), 0.000_536_7),
            // Who studies, as in Wikipedia.
            ((1, 9, 11, 3), 0.002_759_5),
            ((0, 10, 0, 10), 1.0),
            ((5, 5, 5, 5), 1.0),
            ((10, 0, 0, 10), 0.000_010_8),
            ((0, 0, 0, 0), 1.0),
            ((0, 0, 3, 4), 1.0),
        ];
        for ((a, b, c, d), p) in rows {
            for found in [
                fisher_two_sided(a, b, c, d),
                fisher_two_sided(c, d, a, b),
                fisher_two_sided(b, a, d, c),
                fisher_two_sided(a, c, b, d),
            ] {
                assert!(near(found, p, 7), "{a} {b} / {c} {d}: {found}");
            }
        }
    }

    /// Tables by counting all of them, in whole numbers.
    #[test]
    fn fisher_is_what_counting_gives() {
        fn choose(n: u64, k: u64) -> u128 {
            (0..k).fold(1, |ways, idx| {
                ways * u128::from(n - idx) / u128::from(idx + 1)
            })
        }
        for a in 0..7 {
            for b in 0..7 {
                for (c, d) in [(0, 3), (4, 1), (6, 6), (2, 9), (5, 0)] {
                    let (row, other, column) = (a + b, c + d, a + c);
                    let ways = |x: u64| match x <= row && x <= column && column - x <= other {
                        true => choose(row, x) * choose(other, column - x),
                        false => 0,
                    };
                    let all: u128 = (0..=column).map(ways).sum();
                    let unlikely = (0..=column).map(ways).filter(|w| *w <= ways(a));
                    let expected = unlikely.sum::<u128>() as f64 / all as f64;
                    let found = fisher_two_sided(a, b, c, d);
                    assert!(near(found, expected, 12), "{a} {b} / {c} {d}: {found}");
                }
            }
        }
        // Large tables neither overflow nor take long.
        assert!(fisher_two_sided(50_000, 50_000, 49_000, 51_000) < 1e-4);
        assert!(fisher_two_sided(100_000, 0, 0, 100_000) < 1e-300);
    }
}
