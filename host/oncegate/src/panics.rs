//! What is said of a panic: where it happened, and nothing of what it carries.
//!
//! A message of a panic can quote what was being handled, such as a provider's answer or an argument.
//! Crash reports go further than logs do, so the text stays here; the place tells a developer enough.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

/// From now on panics are told without their message.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{}", told(panic))));
}

fn told(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let place = panic.location().map_or_else(|| "somewhere".to_owned(), ToString::to_string);
    let mut text = format!(
        "the program failed at {place} (thread {}); its message is kept back, since it may quote what came from outside",
        thread.name().unwrap_or("without a name")
    );
    // Names of functions and lines, no values; only where RUST_BACKTRACE asks for it.
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        text.push_str(&format!("\n{trace}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_panic_is_told_without_what_it_quotes() {
        let heard: Arc<Mutex<String>> = Arc::default();
        let earlier = std::panic::take_hook();
        let kept = Arc::clone(&heard);
        let here = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == here {
                kept.lock().unwrap().push_str(&told(panic));
            }
        }));
        let text = "sk_live_é".to_owned();
        let cut = std::panic::catch_unwind(|| text[..9].to_owned());
        std::panic::set_hook(earlier);
        assert!(cut.is_err());
        let heard = heard.lock().unwrap();
        assert!(heard.contains("panics.rs:") && !heard.contains("sk_live"), "{heard}");
    }
}
