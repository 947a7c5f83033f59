//! Time as a value. The engine never reads a clock: whoever drives it hands the time in.

/// Microseconds since an arbitrary origin that does not change while the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(
    /// Microseconds.
    pub u64,
);

impl Time {
    /// Microseconds from `earlier` to here; 0 if `earlier` is later.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
