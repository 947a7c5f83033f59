//! Colours and progress bars: readable in a terminal, absent when piped. It must never write to standard
//! output on its own, which belongs to what a command makes.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockstep_package::Progress;
use std::{
    cell::RefCell,
    env,
    io::{IsTerminal, stderr, stdout},
};

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    coloured: bool,
}

impl Paint {
    /// For standard output.
    pub fn stdout() -> Paint {
        Paint {
            coloured: stdout().is_terminal() && wanted(),
        }
    }

    /// For standard error.
    pub fn stderr() -> Paint {
        Paint {
            coloured: stderr().is_terminal() && wanted(),
        }
    }

    /// Whether there are any.
    pub fn is_coloured(self) -> bool {
        self.coloured
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.coloured {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Less important.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// More important.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Wrong.
    pub fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// Well.
    pub fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// To be looked at.
    pub fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// Names and calls.
    pub fn cyan(self, text: &str) -> String {
        self.wrap("36", text)
    }
}

fn wanted() -> bool {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A progress bar on standard error, one after the other; hidden when piped.
#[derive(Debug, Default)]
pub struct Bars {
    bar: RefCell<Option<ProgressBar>>,
}

impl Bars {
    /// Says how far the current work is.
    fn style(total: u64, in_bytes: bool) -> ProgressStyle {
        let template = match (total, in_bytes) {
            (0, _) => "{spinner} {msg} {pos}",
            (_, true) => "{msg:<28} {bar:32.cyan/dim} {bytes:>10} / {total_bytes} {eta:>4}",
            (_, false) => "{msg:<28} {bar:32.cyan/dim} {pos:>6} / {len} {eta:>4}",
        };
        // The templates are constants; the default style is a fine stand-in should one be wrong.
        ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("━━─")
    }
}

impl Progress for Bars {
    fn begin(&self, what: &str, total: u64) {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        bar.set_style(Bars::style(total, total > 1 << 16));
        bar.set_message(what.to_owned());
        self.bar.replace(Some(bar));
    }

    fn advance(&self, by: u64) {
        if let Some(bar) = &*self.bar.borrow() {
            bar.inc(by);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_is_plain() {
        let paint = Paint { coloured: false };
        assert_eq!(paint.red("x"), "x");
        assert!(!paint.is_coloured());
    }

    #[test]
    fn colours_end() {
        let paint = Paint { coloured: true };
        assert_eq!(paint.dim("x"), "\x1b[2mx\x1b[0m");
    }

    #[test]
    fn bars_may_end_twice() {
        let bars = Bars::default();
        bars.begin("reading", 10);
        bars.advance(3);
        bars.end();
        bars.end();
        bars.advance(1);
    }
}
