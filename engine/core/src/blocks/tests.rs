//! The block pool against a model of itself, over every sequence of at most 7 operations.

use super::*;
use alloc::{collections::BTreeSet, vec};
use lockstep_step::BlockId;

const NUM_BLOCKS: u32 = 3;
const NUM_OPERATIONS: usize = 7;

/// Two owners, the steps in flight, and what was given up while some ran.
#[derive(Clone)]
struct World {
    pool: BlockPool,
    tables: [Vec<BlockId>; 2],
    /// What each step names, the oldest first.
    steps: Vec<Vec<BlockId>>,
    /// With the steps in flight that have yet to end.
    given_up: Vec<(BlockId, usize)>,
}

impl World {
    fn check(&self) {
        let tables = || self.tables.iter().flatten().copied();
        let given_up = || self.given_up.iter().map(|&(block, _)| block);
        let held: BTreeSet<BlockId> = tables().chain(given_up()).collect();
        let free: Vec<u32> = (0..NUM_BLOCKS)
            .filter(|&id| !held.contains(&BlockId(id)))
            .collect();
        assert_eq!(self.pool.num_free(), free.len());
        for (id, owners, leases) in self.pool.pool().held() {
            let is = |block: &BlockId| block.0 == id;
            assert_eq!(owners as usize, tables().filter(is).count());
            assert_eq!(leases as usize, given_up().filter(is).count());
            assert_eq!(self.pool.pool().is_free(id), free.contains(&id));
        }
        for block in self.steps.iter().flatten() {
            assert!(held.contains(block), "a step in flight names {block}");
        }
        assert!(self.pool.given_up().eq(given_up()));
        assert_eq!(self.pool.pool().check(false), Ok(()));
        assert_eq!(self.pool.pool().check(true).is_ok(), held.is_empty());
    }

    /// One of 8 operations; false if it makes no sense here.
    fn apply(&mut self, operation: usize) -> bool {
        match operation {
            0 | 1 => {
                let table = &mut self.tables[operation];
                let before = table.clone();
                let lowest = (0..NUM_BLOCKS).find(|&id| self.pool.pool().is_free(id));
                let extended = self.pool.extend(table, before.len() + 1);
                assert_eq!(extended, lowest.is_some());
                let new = &table[before.len()..];
                assert_eq!(
                    new.first().map(|block| block.0),
                    lowest,
                    "the lowest id comes first"
                );
            }
            2 | 3 => {
                let table = &mut self.tables[operation - 2];
                let Some(&last) = table.last() else {
                    return false;
                };
                let len = table.len();
                self.pool.truncate(table, len - 1).expect("it is owned");
                if !self.steps.is_empty() {
                    self.given_up.push((last, self.steps.len()));
                }
            }
            4 => {
                let [first, second] = &mut self.tables;
                let shared = first.first().filter(|block| !second.contains(block));
                let Some(&shared) = shared else {
                    return false;
                };
                self.pool.share(shared).expect("it is owned");
                second.push(shared);
            }
            5 | 6 => {
                // A step with both, or with the first alone.
                let named = &self.tables[..7 - operation];
                self.pool.begin_step();
                self.steps.push(named.concat());
            }
            _ => {
                if self.steps.is_empty() {
                    return false;
                }
                self.steps.remove(0);
                self.pool.end_step().expect("what it held is leased");
                self.given_up.retain_mut(|(_, num_steps)| {
                    *num_steps -= 1;
                    *num_steps > 0
                });
            }
        }
        true
    }
}

fn explore(world: &World, num_left: usize, num_states: &mut u64) {
    world.check();
    *num_states += 1;
    if num_left == 0 {
        return;
    }
    for operation in 0..8 {
        let mut next = world.clone();
        if next.apply(operation) {
            explore(&next, num_left - 1, num_states);
        }
    }
}

#[test]
fn every_sequence_of_seven_operations_conserves_blocks() {
    let world = World {
        pool: BlockPool::new(NUM_BLOCKS),
        tables: [vec![], vec![]],
        steps: vec![],
        given_up: vec![],
    };
    let mut num_states = 0;
    explore(&world, NUM_OPERATIONS, &mut num_states);
    assert!(num_states > 30_000, "only {num_states} states were seen");
}

#[test]
fn what_is_not_held_can_not_be_given_up() {
    let mut pool = BlockPool::new(1);
    let mut table = vec![];
    assert!(pool.extend(&mut table, 1));
    assert!(!pool.extend(&mut table, 2), "there is one block");
    assert_eq!(pool.truncate(&mut table.clone(), 0), Ok(()));
    let fault = pool.truncate(&mut table, 0);
    let expected = EngineFault::Pool {
        pool: "block",
        id: 0,
        action: "release",
        owners: 0,
        leases: 0,
    };
    assert_eq!(fault, Err(expected));
    pool.begin_step();
    assert!(pool.extend(&mut table, 1));
    let mut again = table.clone();
    assert_eq!(pool.truncate(&mut table, 0), Ok(()));
    assert!(!pool.extend(&mut table, 1), "the step may name it");
    assert!(pool.truncate(&mut again, 0).is_err(), "nobody owns it");
    assert_eq!(pool.end_step(), Ok(()));
    assert!(pool.extend(&mut table, 1));
    assert!(pool.share(BlockId(1)).is_err(), "there is no such block");
}
