//! What happens when nobody reads the output any more. It must never be used by the server: one client
//! that goes away must not end it.

/// Ends the command when the reader of its output does, as `head` does, like any other Unix program; Rust
/// would have it panic.
pub fn end_with_the_reader() {
    #[cfg(unix)]
    // SAFETY: this restores the default action before any thread is started; no handler is installed.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
