//! The block pool against a model of itself, over every sequence of at most 7 operations.

use super::*;
use alloc::{collections::BTreeSet, vec};
use lockstep_step::BlockId;

const NUM_BLOCKS: u32 = 3;
const NUM_OPERATIONS: usize = 7;

/// Two owners, and the steps in flight, oldest first.
#[derive(Clone)]
struct World {
    pool: BlockPool,
    tables: [Vec<BlockId>; 2],
    steps: Vec<Vec<BlockId>>,
}

impl World {
    fn held(&self) -> BTreeSet<BlockId> {
        let owned = self.tables.iter().chain(&self.steps).flatten();
        owned.copied().collect()
    }

    fn check(&self) {
        let held = self.held();
        let free: Vec<u32> = (0..NUM_BLOCKS)
            .filter(|&id| !held.contains(&BlockId(id)))
            .collect();
        assert_eq!(self.pool.num_free(), free.len());
        for (id, owners, leases) in self.pool.pool().held() {
            let count = |lists: &[Vec<BlockId>]| {
                lists.iter().flatten().filter(|block| block.0 == id).count() as u32
            };
            assert_eq!((owners, leases), (count(&self.tables), count(&self.steps)));
            assert_eq!(self.pool.pool().is_free(id), free.contains(&id));
        }
        assert_eq!(self.pool.pool().check(false), Ok(()));
        assert_eq!(self.pool.pool().check(true).is_ok(), held.is_empty());
    }

    /// One of 7 operations; false if it makes no sense here.
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
                let len = table.len();
                if len == 0 {
                    return false;
                }
                self.pool.truncate(table, len - 1).expect("it is owned");
            }
            4 | 5 => {
                let blocks = self.tables[operation - 4].clone();
                if blocks.is_empty() {
                    return false;
                }
                self.pool.lease(&blocks).expect("they are owned");
                self.steps.push(blocks);
            }
            _ => {
                if self.steps.is_empty() {
                    return false;
                }
                let blocks = self.steps.remove(0);
                self.pool.end_lease(&blocks).expect("they are leased");
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
    for operation in 0..7 {
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
    assert!(pool.end_lease(&[BlockId(0)]).is_err());
    assert!(
        pool.lease(&[BlockId(0)]).is_err(),
        "a free block can't be named"
    );
    assert!(pool.lease(&[BlockId(1)]).is_err(), "there is no such block");
}
