//! Frames as they went and as they must not come.
