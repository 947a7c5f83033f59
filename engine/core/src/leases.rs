//! Who holds a numbered thing: owners, steps in flight that name it, and the prefix cache. It is free again
//! only when all are gone, so that nothing is reused under a running step. What nobody but the cache holds
//! is idle: it can be had like a free one, once the cache has given it up.

mod free;
mod order;

use crate::EngineFault;
use alloc::{vec, vec::Vec};
use free::FreeSet;
use order::Arrivals;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holders {
    owners: u32,
    leases: u32,
    is_cached: bool,
}

/// Where an id stands. It follows from its holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Free,
    Idle,
    Held,
}

impl Holders {
    fn standing(&self) -> Standing {
        match (self.owners + self.leases, self.is_cached) {
            (0, false) => Standing::Free,
            (0, true) => Standing::Idle,
            _ => Standing::Held,
        }
    }
}

/// A pool of `0..len`. The free one with the lowest id is given first, whatever the history.
#[derive(Clone, Debug)]
pub(crate) struct LeasePool {
    name: &'static str,
    holders: Vec<Holders>,
    free: FreeSet,
    /// In the order in which they became idle.
    idle: Arrivals,
    num_held: usize,
}

impl LeasePool {
    pub(crate) fn new(name: &'static str, len: u32) -> LeasePool {
        LeasePool {
            name,
            holders: vec![Holders::default(); len as usize],
            free: FreeSet::full(len),
            idle: Arrivals::new(len),
            num_held: 0,
        }
    }

    pub(crate) fn num_free(&self) -> usize {
        self.free.len()
    }

    /// Held by nothing but the cache.
    pub(crate) fn num_idle(&self) -> usize {
        self.idle.len()
    }

    /// What can be had: free ones, and idle ones once the cache gives them up.
    pub(crate) fn num_available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Takes the lowest free one; the caller owns it.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let id = self.free.first()?;
        self.change(id, |holders| holders.owners = 1);
        Some(id)
    }

    /// Adds an owner to what is held or idle.
    pub(crate) fn share(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "share")?;
        if holders.standing() == Standing::Free {
            return Err(self.misuse(id, "share"));
        }
        self.change(id, |holders| holders.owners += 1);
        Ok(())
    }

    /// Gives up one ownership.
    pub(crate) fn release(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "release")?;
        if holders.owners == 0 {
            return Err(self.misuse(id, "release"));
        }
        self.change(id, |holders| holders.owners -= 1);
        Ok(())
    }

    /// Notes that a step in flight names it. Only what is owned can be named.
    pub(crate) fn lease(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "lease")?;
        if holders.owners == 0 {
            return Err(self.misuse(id, "lease"));
        }
        self.change(id, |holders| holders.leases += 1);
        Ok(())
    }

    /// Notes that a step that named it has been committed.
    pub(crate) fn end_lease(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "end the lease of")?;
        if holders.leases == 0 {
            return Err(self.misuse(id, "end the lease of"));
        }
        self.change(id, |holders| holders.leases -= 1);
        Ok(())
    }

    /// Lets the cache hold what somebody owns.
    pub(crate) fn cache(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "cache")?;
        if holders.is_cached || holders.owners == 0 {
            return Err(self.misuse(id, "cache"));
        }
        self.change(id, |holders| holders.is_cached = true);
        Ok(())
    }

    /// The cache gives it up.
    pub(crate) fn uncache(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "uncache")?;
        if !holders.is_cached {
            return Err(self.misuse(id, "uncache"));
        }
        self.change(id, |holders| holders.is_cached = false);
        Ok(())
    }

    /// The one that has been idle for longest.
    pub(crate) fn oldest_idle(&self) -> Option<u32> {
        self.idle.first()
    }

    pub(crate) fn is_idle(&self, id: u32) -> bool {
        self.standing(id) == Some(Standing::Idle)
    }

    pub(crate) fn is_free(&self, id: u32) -> bool {
        self.standing(id) == Some(Standing::Free)
    }

    pub(crate) fn is_cached(&self, id: u32) -> bool {
        self.holders
            .get(id as usize)
            .is_some_and(|holders| holders.is_cached)
    }

    /// Free, idle and held ones must be all there are; while nothing runs, nothing may be held.
    pub(crate) fn check(&self, nothing_runs: bool) -> Result<(), EngineFault> {
        let total = self.holders.len();
        let adds_up = self.free.len() + self.idle.len() + self.num_held == total;
        if adds_up && (!nothing_runs || self.num_held == 0) {
            return Ok(());
        }
        Err(EngineFault::Conservation {
            pool: self.name,
            free: self.free.len(),
            idle: self.idle.len(),
            held: self.num_held,
            total,
        })
    }

    /// Owners and leases of each, for a full recount.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u32, u32, u32)> + '_ {
        let numbered = self.holders.iter().enumerate();
        numbered.map(|(id, holders)| (id as u32, holders.owners, holders.leases))
    }

    pub(crate) fn misuse(&self, id: u32, action: &'static str) -> EngineFault {
        let holders = self.holders.get(id as usize).copied().unwrap_or_default();
        EngineFault::Pool {
            pool: self.name,
            id,
            action,
            owners: holders.owners,
            leases: holders.leases,
        }
    }

    fn standing(&self, id: u32) -> Option<Standing> {
        self.holders.get(id as usize).map(Holders::standing)
    }

    fn get(&self, id: u32, action: &'static str) -> Result<Holders, EngineFault> {
        let holders = self.holders.get(id as usize).copied();
        holders.ok_or_else(|| self.misuse(id, action))
    }

    /// The one place where holders change: the sets follow.
    #[inline]
    fn change(&mut self, id: u32, change: impl FnOnce(&mut Holders)) {
        let holders = &mut self.holders[id as usize];
        let before = holders.standing();
        change(holders);
        let after = holders.standing();
        if before != after {
            self.stand(id, before, after);
        }
    }

    fn stand(&mut self, id: u32, before: Standing, after: Standing) {
        match before {
            Standing::Free => self.free.remove(id),
            Standing::Idle => self.idle.remove(id),
            Standing::Held => self.num_held -= 1,
        }
        match after {
            Standing::Free => self.free.insert(id),
            Standing::Idle => self.idle.push(id),
            Standing::Held => self.num_held += 1,
        }
    }
}

#[cfg(test)]
mod tests;
