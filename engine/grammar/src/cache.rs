//! What was made once and may be wanted again, by content. Bounded; what was wanted least recently goes
//! first. It may change how long something takes, and never what comes out.

use std::collections::BTreeMap;

/// A bounded map.
pub(crate) struct Cache<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    entries_max: usize,
    num_uses: u64,
    stats: CacheStats,
}

struct Entry<V> {
    value: V,
    used: u64,
}

/// How a cache does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// What was there.
    pub hits: u64,
    /// What had to be made.
    pub misses: u64,
    /// What had to go.
    pub evictions: u64,
    /// What is there now.
    pub entries: usize,
}

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    /// An empty cache that keeps at most this many, and at least one.
    pub(crate) fn new(entries_max: usize) -> Cache<K, V> {
        Cache {
            entries: BTreeMap::new(),
            entries_max: entries_max.max(1),
            num_uses: 0,
            stats: CacheStats::default(),
        }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.num_uses += 1;
        match self.entries.get_mut(key) {
            Some(entry) => {
                entry.used = self.num_uses;
                self.stats.hits += 1;
                Some(entry.value.clone())
            }
            None => {
                self.stats.misses += 1;
                None
            }
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.num_uses += 1;
        let used = self.num_uses;
        self.entries.insert(key, Entry { value, used });
        while self.entries.len() > self.entries_max {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.entries.remove(&oldest);
            self.stats.evictions += 1;
        }
    }

    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats {
            entries: self.entries.len(),
            ..self.stats
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = Cache::new(2);
        cache.insert("a", 1);
        cache.insert("b", 2);
        assert_eq!(cache.get(&"a"), Some(1));
        cache.insert("c", 3);
        assert_eq!(cache.get(&"b"), None);
        assert_eq!((cache.get(&"a"), cache.get(&"c")), (Some(1), Some(3)));
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (3, 1));
        assert_eq!((stats.evictions, stats.entries), (1, 2));
    }
}
