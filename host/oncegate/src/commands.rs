//! One file per command.

pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod inspect;
pub(crate) mod ledger;
pub(crate) mod man;
pub(crate) mod pack;
pub(crate) mod permit;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod registry;
mod settling;
pub(crate) mod sign;
mod signed;
pub(crate) mod token;
