//! Ids in the order in which they came, each at most once, any of which can be taken out: a list that is
//! linked through a table.

use alloc::{vec, vec::Vec};

/// No id.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

/// Some of the ids from 0 on, the first that came first.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    links: Vec<Links>,
    first: u32,
    last: u32,
    len: usize,
}

impl Arrivals {
    /// None of the ids below `num_ids`.
    pub(super) fn new(num_ids: u32) -> Arrivals {
        let alone = Links {
            before: NONE,
            after: NONE,
        };
        Arrivals {
            links: vec![alone; num_ids as usize],
            first: NONE,
            last: NONE,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Puts in what is not in it, as the last.
    pub(super) fn push(&mut self, id: u32) {
        self.links[id as usize] = Links {
            before: self.last,
            after: NONE,
        };
        match self.last {
            NONE => self.first = id,
            last => self.links[last as usize].after = id,
        }
        self.last = id;
        self.len += 1;
    }

    /// Takes out what is in it.
    pub(super) fn remove(&mut self, id: u32) {
        let Links { before, after } = self.links[id as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].before = before,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_can_leave_and_the_rest_keep_their_order(
            toggled in prop::collection::vec(0u32..7, 0..60),
        ) {
            let mut arrivals = Arrivals::new(7);
            let mut plain: Vec<u32> = vec![];
            for id in toggled {
                if let Some(at) = plain.iter().position(|&other| other == id) {
                    plain.remove(at);
                    arrivals.remove(id);
                } else {
                    plain.push(id);
                    arrivals.push(id);
                }
                let mut rest = arrivals.clone();
                let order: Vec<u32> = core::iter::from_fn(|| {
                    let first = rest.first()?;
                    rest.remove(first);
                    Some(first)
                }).collect();
                prop_assert_eq!(arrivals.len(), plain.len());
                prop_assert_eq!(order, plain.clone());
            }
        }
    }
}
