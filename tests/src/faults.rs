//! The fault matrix: every kill point in every mode of a provider, judged by what the provider counts.
//!
//! A [`scenario::Scenario`] says which tool is driven and how the provider's objects are told apart;
//! a [`trouble::Trouble`] how the provider goes wrong; a [`moments`] where a process ends. Four
//! ways to run them: [`steps`] with single effects and a kill at a system call, [`volume`] with
//! hundreds of effects a call and kills at random, [`crowd`] with many callers on one key, [`held`] with
//! an answer that never ends. All of them end in [`oracle::Book::judge`].

pub mod baselines;
pub mod chance;
pub mod crowd;
pub mod held;
pub mod matrix;
pub mod moments;
pub mod oncegate;
pub mod oracle;
pub mod postgres;
pub mod row;
pub mod scenario;
pub mod steps;
pub mod system;
pub mod table;
pub mod trouble;
pub mod unit;
pub mod volume;
