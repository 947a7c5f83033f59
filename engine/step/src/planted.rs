//! Switches of planted faults: bugs that public engines really had, put back into this one to see whether the
//! simulation finds them. Only the simulation's build (`--cfg planted`) has them; in every other build
//! [`planted!`](crate::planted!) is `false`, and what stands behind it is not in the program.
//!
//! What each fault is, where it is from and which stage is to blame for it is in `sim/src/planted/`.

/// Whether a fault is switched on: `planted!(Name)`. Always `false` outside the simulation's build.
#[cfg(not(planted))]
#[macro_export]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

/// Whether a fault is switched on: `planted!(Name)`.
#[cfg(planted)]
#[macro_export]
macro_rules! planted {
    ($fault:ident) => {
        $crate::planted::is_on($crate::planted::Planted::$fault)
    };
}

#[cfg(planted)]
pub use switches::{Planted, is_on, set};

#[cfg(planted)]
mod switches {
    use core::sync::atomic::{AtomicU32, Ordering};

    macro_rules! faults {
        ($($name:ident $id:literal,)*) => {
            /// A fault, by the name of its switch.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            #[allow(missing_docs)]
            pub enum Planted { $($name,)* }

            impl Planted {
                /// All of them.
                pub const ALL: &[Planted] = &[$(Planted::$name,)*];

                /// The name that tables and command lines have for it.
                pub const fn id(self) -> &'static str {
                    match self { $(Planted::$name => $id,)* }
                }
            }
        };
    }

    faults! {
        // Speculative fill and rollback.
        // Grammar state and drafts.
        // Overlapped scheduling and preemption.
        // KV cache, state rows, prefix cache.
        // Sampler and rules of logits.
        // Kernels and static buffers.
        // Detokenizer, stop rules, streams, usage.
        StopOnLastTokenOnly "eos-mid-block-continues",
        // Tags and channels.
        // Cancellation, liveness, leaks.
        // Preparation and defaults.
    }

    /// One more than the place of the fault that is on; 0 is none.
    static ON: AtomicU32 = AtomicU32::new(0);

    /// Whether it is on.
    pub fn is_on(fault: Planted) -> bool {
        ON.load(Ordering::Relaxed) == fault as u32 + 1
    }

    /// Switches one on, or all off, for the whole process, and says which was on before.
    pub fn set(fault: Option<Planted>) -> Option<Planted> {
        let next = fault.map_or(0, |fault| fault as u32 + 1);
        let before = ON.swap(next, Ordering::Relaxed);
        before
            .checked_sub(1)
            .and_then(|idx| Planted::ALL.get(idx as usize))
            .copied()
    }
}
