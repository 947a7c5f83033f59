//! The pool against a plain model of itself, over every sequence of at most 6 operations on two ids.

use super::*;
use alloc::vec::Vec;

const NUM_OPERATIONS: usize = 6;

/// What one id should be: owners, leases, cached, and when it last became idle.
#[derive(Clone, Copy, Default)]
struct Model {
    owners: u32,
    leases: u32,
    is_cached: bool,
    idle_since: usize,
}

#[derive(Clone)]
struct World {
    pool: LeasePool,
    models: [Model; 2],
    num_done: usize,
}

impl World {
    fn apply(&mut self, operation: usize) {
        self.num_done += 1;
        if operation == 12 {
            let lowest = (0..2).find(|&id| self.pool.is_free(id));
            assert_eq!(self.pool.take(), lowest);
            if let Some(id) = lowest {
                self.models[id as usize].owners = 1;
            }
            return;
        }
        let id = operation as u32 % 2;
        let model = &mut self.models[id as usize];
        let was_held = model.owners + model.leases > 0;
        let is_known = was_held || model.is_cached;
        let (expected, done) = match operation / 2 {
            0 => (is_known, self.pool.share(id)),
            1 => (model.owners > 0, self.pool.release(id)),
            2 => (model.owners > 0, self.pool.lease(id)),
            3 => (model.leases > 0, self.pool.end_lease(id)),
            4 => (model.owners > 0 && !model.is_cached, self.pool.cache(id)),
            _ => (model.is_cached, self.pool.uncache(id)),
        };
        assert_eq!(done.is_ok(), expected, "operation {operation}");
        if !expected {
            return;
        }
        match operation / 2 {
            0 => model.owners += 1,
            1 => model.owners -= 1,
            2 => model.leases += 1,
            3 => model.leases -= 1,
            4 => model.is_cached = true,
            _ => model.is_cached = false,
        }
        if was_held && model.owners + model.leases == 0 {
            model.idle_since = self.num_done;
        }
    }

    fn check(&self) {
        let held = |model: &Model| model.owners + model.leases > 0;
        let mut idle: Vec<(usize, u32)> = Vec::new();
        for (id, model) in self.models.iter().enumerate() {
            let is_idle = !held(model) && model.is_cached;
            if is_idle {
                idle.push((model.idle_since, id as u32));
            }
            assert_eq!(self.pool.is_idle(id as u32), is_idle);
            assert_eq!(self.pool.is_cached(id as u32), model.is_cached);
            let is_free = !held(model) && !model.is_cached;
            assert_eq!(self.pool.is_free(id as u32), is_free);
        }
        idle.sort_unstable();
        assert_eq!(self.pool.oldest_idle(), idle.first().map(|idle| idle.1));
        assert_eq!(self.pool.num_idle(), idle.len());
        let num_held = self.models.iter().filter(|model| held(model)).count();
        assert_eq!(self.pool.num_available(), 2 - num_held);
        assert_eq!(self.pool.check(false), Ok(()));
        assert_eq!(self.pool.check(true).is_ok(), num_held == 0);
    }
}

fn explore(world: &World, num_left: usize, num_states: &mut u64) {
    world.check();
    *num_states += 1;
    if num_left == 0 {
        return;
    }
    for operation in 0..13 {
        let mut next = world.clone();
        next.apply(operation);
        // What is refused changes nothing, so there is nothing new after it.
        if next.pool.holders != world.pool.holders {
            explore(&next, num_left - 1, num_states);
        }
    }
}

#[test]
fn every_sequence_of_six_operations_keeps_owners_leases_and_the_cache_apart() {
    let world = World {
        pool: LeasePool::new("block", 2),
        models: [Model::default(); 2],
        num_done: 0,
    };
    let mut num_states = 0;
    explore(&world, NUM_OPERATIONS, &mut num_states);
    assert!(num_states > 5_000, "only {num_states} states were seen");
}
