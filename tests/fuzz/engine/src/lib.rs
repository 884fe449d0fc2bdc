//! Nothing: what counts is the library that a dependency builds.
