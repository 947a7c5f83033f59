//! What is alive, by the id of its sequence. Ids ascend, and most of those alive are close together: a place
//! for each id, from the oldest alive to the youngest, makes a look-up a single load. A place costs a pointer.

use alloc::{boxed::Box, collections::VecDeque};
use core::ops::Index;
use lockstep_step::SeqId;

/// Things by id, in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Live<T> {
    /// `places[i]` is for the id `first + i`. Neither the first nor the last is empty.
    places: VecDeque<Option<Box<T>>>,
    first: u64,
    len: usize,
}

impl<T> Default for Live<T> {
    fn default() -> Live<T> {
        Live {
            places: VecDeque::new(),
            first: 0,
            len: 0,
        }
    }
}

impl<T> Live<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, id: SeqId) -> Option<&T> {
        self.places.get(self.place(id)?)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: SeqId) -> Option<&mut T> {
        let place = self.place(id)?;
        self.places.get_mut(place)?.as_deref_mut()
    }

    pub(crate) fn contains(&self, id: SeqId) -> bool {
        self.get(id).is_some()
    }

    /// Puts in what has an id above all that are in it.
    ///
    /// # Panics
    /// If it has not.
    pub(crate) fn insert(&mut self, id: SeqId, value: T) {
        if self.places.is_empty() {
            self.first = id.0;
        }
        let place = self.place(id).unwrap_or(0);
        assert!(
            place >= self.places.len(),
            "{id:?} is not above those before it"
        );
        self.places.resize_with(place, || None);
        self.places.push_back(Some(Box::new(value)));
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, id: SeqId) -> Option<Box<T>> {
        let place = self.place(id)?;
        let value = self.places.get_mut(place)?.take()?;
        self.len -= 1;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        while let Some(None) = self.places.back() {
            self.places.pop_back();
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SeqId, &T)> {
        let numbered = (self.first..).zip(&self.places);
        numbered.filter_map(|(id, value)| Some((SeqId(id), value.as_deref()?)))
    }

    fn place(&self, id: SeqId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(self.first)?).ok()
    }
}

impl<T> Index<SeqId> for Live<T> {
    type Output = T;

    fn index(&self, id: SeqId) -> &T {
        let value = self.get(id);
        value.unwrap_or_else(|| panic!("{id:?} is not alive"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{collections::BTreeMap, vec::Vec};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_whose_keys_are_put_in_in_order(
            // How far the next id is above the last, or which of the ids to take out.
            actions in prop::collection::vec((any::<bool>(), 0u64..12), 0..60),
        ) {
            let (mut live, mut plain) = (Live::default(), BTreeMap::new());
            let mut next = 0;
            for (inserts, number) in actions {
                if inserts {
                    next += number;
                    live.insert(SeqId(next), next);
                    plain.insert(SeqId(next), next);
                    next += 1;
                } else {
                    let id = SeqId(next.saturating_sub(number));
                    prop_assert_eq!(live.remove(id).map(|value| *value), plain.remove(&id));
                }
                for id in (0..next + 2).map(SeqId) {
                    prop_assert_eq!(live.get(id), plain.get(&id));
                    prop_assert_eq!(live.get_mut(id), plain.get_mut(&id));
                    prop_assert_eq!(live.contains(id), plain.contains_key(&id));
                }
                prop_assert_eq!(live.is_empty(), plain.is_empty());
                prop_assert_eq!(live.len(), plain.len());
                let all: Vec<(SeqId, u64)> = live.iter().map(|(id, &value)| (id, value)).collect();
                let expected: Vec<(SeqId, u64)> = plain.clone().into_iter().collect();
                prop_assert_eq!(all, expected);
                let ends = [live.places.front(), live.places.back()];
                prop_assert!(!ends.contains(&Some(&None)), "no place outlives those around it");
            }
        }
    }
}
