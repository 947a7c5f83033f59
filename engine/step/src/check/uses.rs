//! Who names what in one plan: for each block, or for each row, the last sequence that named it and whether
//! another did before. It is kept from plan to plan, so that a check has nothing to build up or to clear.

use alloc::vec::Vec;

/// What was noted of one id: twice the number of its last user, and one more if it was named before. Numbers
/// go on from plan to plan, so that a note of an earlier plan is below all of this one's.
type Note = u32;

/// Users that can be numbered before all notes have to be cleared.
const NUM_USERS_MAX: u32 = Note::MAX >> 1;

/// Uses of ids from 0 on, by users that are numbered too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    notes: Vec<Note>,
    /// The number of this plan's first user; at least 1 once something is noted.
    first: u32,
    /// One past the number of its last.
    end: u32,
}

impl Uses {
    /// Begins a plan: nothing is used.
    pub(crate) fn begin(&mut self, num_ids: u32, num_users: usize) {
        if self.notes.len() < num_ids as usize {
            self.notes.resize(num_ids as usize, 0);
        }
        let num_users = u32::try_from(num_users).unwrap_or(NUM_USERS_MAX);
        if num_users > NUM_USERS_MAX.saturating_sub(self.end) {
            self.notes.fill(0);
            self.end = 0;
        }
        self.first = self.end.max(1);
        self.end = self.first + num_users;
    }

    /// Notes a use of an id that exists. False if the same user named it last, too.
    pub(crate) fn note(&mut self, id: u32, user: usize) -> bool {
        let note = &mut self.notes[id as usize];
        let (number, last) = (self.first + user as u32, *note >> 1);
        *note = number << 1 | u32::from(last >= self.first);
        last != number
    }

    /// Whether an id that exists was named more than once.
    pub(crate) fn is_shared(&self, id: u32) -> bool {
        let note = self.notes[id as usize];
        note & 1 == 1 && note >> 1 >= self.first
    }

    /// So late that notes will soon have to be cleared.
    #[cfg(test)]
    pub(crate) fn late(num_users_left: u32) -> Uses {
        Uses {
            end: NUM_USERS_MAX - num_users_left,
            ..Uses::default()
        }
    }
}
