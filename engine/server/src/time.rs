//! Time and timers: with `net`, the only file that touches the runtime's clock, so that a simulated
//! one can stand in. Nothing here may decide what a request's answer is.

use lockstep_core::Time;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

pub(crate) use tokio::time::{sleep, timeout};

/// The engine's time: microseconds since the server began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            origin: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// Seconds since 1970, for fields such as `created`.
pub(crate) fn unix_seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |duration| duration.as_secs())
}

/// hyper's timers on whichever runtime this build has. (hyper-util's own are always the real one.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct RtTimer;

struct RtSleep(Pin<Box<Sleep>>);

impl Future for RtSleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl hyper::rt::Sleep for RtSleep {}

impl hyper::rt::Timer for RtTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(RtSleep(Box::pin(sleep(duration))))
    }

    // The conversions are the identity in simulation, where both kinds of instant are one.
    #[allow(clippy::useless_conversion)]
    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(RtSleep(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }

    #[allow(clippy::useless_conversion)]
    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}
