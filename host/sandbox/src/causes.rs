//! Why something failed, down to its cause.

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}
