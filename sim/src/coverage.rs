//! Whether the generator brings everything: each feature, and each pair of features, in a thousand seeds.

use crate::options::{Feature, Options};
use std::collections::BTreeMap;

/// How often each feature and each pair of features occurs in the seeds from 0 on.
pub struct Coverage {
    /// By feature.
    pub features: BTreeMap<Feature, u64>,
    /// By pair, the smaller one first.
    pub pairs: BTreeMap<(Feature, Feature), u64>,
}

impl Coverage {
    /// Of so many seeds.
    pub fn of(seeds: u64) -> Coverage {
        let all = Feature::ALL.map(|(feature, _)| feature);
        let mut coverage = Coverage {
            features: all.iter().map(|feature| (*feature, 0)).collect(),
            pairs: BTreeMap::new(),
        };
        for (idx, first) in all.iter().enumerate() {
            for second in &all[idx + 1..] {
                let pair = (*first.min(second), *first.max(second));
                coverage.pairs.insert(pair, 0);
            }
        }
        for seed in 0..seeds {
            let has = Options::of(seed).features;
            for (idx, first) in has.iter().enumerate() {
                *coverage.features.entry(*first).or_default() += 1;
                for second in &has[idx + 1..] {
                    let pair = (*first.min(second), *first.max(second));
                    *coverage.pairs.entry(pair).or_default() += 1;
                }
            }
        }
        coverage
    }

    /// What never occurs.
    pub fn missing(&self) -> Vec<String> {
        let features = self.features.iter().filter(|(_, count)| **count == 0);
        let features = features.map(|(feature, _)| format!("{feature:?}"));
        let pairs = self.pairs.iter().filter(|(_, count)| **count == 0);
        let pairs = pairs.map(|((first, second), _)| format!("{first:?} with {second:?}"));
        features.chain(pairs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_features_occurs_in_a_thousand_seeds() {
        let coverage = Coverage::of(1000);
        let num_features = Feature::ALL.len();
        assert_eq!(coverage.features.len(), num_features);
        assert_eq!(coverage.pairs.len(), num_features * (num_features - 1) / 2);
        assert_eq!(coverage.missing(), Vec::<String>::new());
        // A generator that has everything on at once would pass the test above.
        let rarest = coverage.features.values().max();
        assert!(rarest.is_some_and(|count| *count < 900), "{rarest:?}");
    }

    #[test]
    fn a_few_seeds_do_not_have_every_pair() {
        assert!(!Coverage::of(3).missing().is_empty());
    }
}
