//! Clients side by side, each doing one piece of work after the other. It must never leave a piece out, nor do
//! one twice.

use std::{
    io,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

/// Threads of clients do little: the default stack would be a thousand times what they need.
const STACK_BYTES: usize = 512 << 10;

/// Does `num` pieces of work by so many clients, and waits for all. `on_done` hears of each, in the order in
/// which they ended; once it says false no other is begun.
///
/// # Errors
/// If the system has no thread to give.
pub fn run<T: Send>(
    (num_clients, num): (u64, u64),
    work: &(dyn Fn(u64) -> T + Sync),
    on_done: &mut dyn FnMut(T) -> bool,
) -> io::Result<()> {
    let next = AtomicU64::new(0);
    let client = |sender: mpsc::Sender<T>| {
        loop {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            if idx >= num {
                return;
            }
            // The receiver waits for every sender.
            let _ = sender.send(work(idx));
        }
    };
    let (sender, receiver) = mpsc::channel();
    let client = &client;
    thread::scope(|scope| {
        for _ in 0..num_clients.min(num) {
            let sender = sender.clone();
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            let made = builder.spawn_scoped(scope, move || client(sender));
            if let Err(error) = made {
                // Those that run must not begin another.
                next.store(num, Ordering::Relaxed);
                return Err(error);
            }
        }
        drop(sender);
        for done in receiver {
            if !on_done(done) {
                next.store(num, Ordering::Relaxed);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn each_piece_is_done_once() {
        for num_clients in [1, 3, 40] {
            let mut done = Vec::new();
            let ran = run((num_clients, 20), &|idx| idx, &mut |idx| {
                done.push(idx);
                true
            });
            ran.expect("threads");
            done.sort_unstable();
            assert_eq!(done, (0..20).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn no_other_is_begun_once_it_is_enough() {
        let mut num_done = 0;
        let ran = run((1, 1_000_000), &|_| (), &mut |()| {
            num_done += 1;
            num_done < 3
        });
        ran.expect("a thread");
        assert!((3..1_000_000).contains(&num_done), "{num_done}");
    }
}
