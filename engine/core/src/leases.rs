//! Who holds a numbered thing: owners, and steps in flight that name it. It is free again only when both
//! are gone, so that nothing is reused under a running step.

use crate::EngineFault;
use alloc::{collections::BTreeSet, vec, vec::Vec};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holders {
    owners: u32,
    leases: u32,
}

/// A pool of `0..len`. The free one with the lowest id is given first, whatever the history.
#[derive(Clone, Debug)]
pub(crate) struct LeasePool {
    name: &'static str,
    holders: Vec<Holders>,
    free: BTreeSet<u32>,
    num_held: usize,
}

impl LeasePool {
    pub(crate) fn new(name: &'static str, len: u32) -> LeasePool {
        LeasePool {
            name,
            holders: vec![Holders::default(); len as usize],
            free: (0..len).collect(),
            num_held: 0,
        }
    }

    pub(crate) fn num_free(&self) -> usize {
        self.free.len()
    }

    /// Takes the lowest free one; the caller owns it.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let id = self.free.pop_first()?;
        self.holders[id as usize].owners = 1;
        self.num_held += 1;
        Some(id)
    }

    /// Gives up one ownership.
    pub(crate) fn release(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "release")?;
        if holders.owners == 0 {
            return Err(self.misuse(id, "release"));
        }
        self.holders[id as usize].owners -= 1;
        self.free_if_unheld(id);
        Ok(())
    }

    /// Notes that a step in flight names it. Only what is owned can be named.
    pub(crate) fn lease(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "lease")?;
        if holders.owners == 0 {
            return Err(self.misuse(id, "lease"));
        }
        self.holders[id as usize].leases += 1;
        Ok(())
    }

    /// Notes that a step that named it has been committed.
    pub(crate) fn end_lease(&mut self, id: u32) -> Result<(), EngineFault> {
        let holders = self.get(id, "end the lease of")?;
        if holders.leases == 0 {
            return Err(self.misuse(id, "end the lease of"));
        }
        self.holders[id as usize].leases -= 1;
        self.free_if_unheld(id);
        Ok(())
    }

    /// Free and held ones must be all there are; with `idle` set, all must be free.
    pub(crate) fn check(&self, idle: bool) -> Result<(), EngineFault> {
        let total = self.holders.len();
        let adds_up = self.free.len() + self.num_held == total;
        if adds_up && (!idle || self.num_held == 0) {
            return Ok(());
        }
        Err(EngineFault::Conservation {
            pool: self.name,
            free: self.free.len(),
            held: self.num_held,
            total,
        })
    }

    /// Owners and leases of each, for a full recount.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u32, u32, u32)> + '_ {
        let numbered = self.holders.iter().enumerate();
        numbered.map(|(id, holders)| (id as u32, holders.owners, holders.leases))
    }

    pub(crate) fn is_free(&self, id: u32) -> bool {
        self.free.contains(&id)
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

    fn get(&self, id: u32, action: &'static str) -> Result<Holders, EngineFault> {
        let holders = self.holders.get(id as usize).copied();
        holders.ok_or_else(|| self.misuse(id, action))
    }

    fn free_if_unheld(&mut self, id: u32) {
        if self.holders[id as usize] == Holders::default() {
            self.free.insert(id);
            self.num_held -= 1;
        }
    }
}
