//! Where in arguments or a result a conversion is: a JSON pointer, written out only for an error.

use std::fmt;

use crate::schema::property;

/// A place, as the chain of what it is in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'a> {
    /// The whole.
    Root,
    /// A member, by its WIT name.
    Member(&'a Path<'a>, &'a str),
    /// An item of a list.
    Item(&'a Path<'a>, usize),
    /// What a case carries.
    Case(&'a Path<'a>, &'a str),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(of, name) => write!(f, "{of}/{}", property(name)),
            Self::Item(of, index) => write!(f, "{of}/{index}"),
            Self::Case(of, name) => write!(f, "{of}/{name}"),
        }
    }
}
