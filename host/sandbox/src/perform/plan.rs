//! The gate of a plan: only its targets, with the values that were frozen.

use oncegate_ledger::{Append, Expect};

use super::{Passage, Wanted, key_of};
use crate::plan::Plan;
use crate::policy::Grant;
use crate::stop::Stop;

impl Wanted<'_> {
    /// An effect of a call that names a plan must be part of it, by its key without the epoch, and have
    /// the values that were frozen.
    pub(super) fn plan(&self, grant: &Grant, passage: &mut Passage) -> Result<(), Stop> {
        let plan = match self.call.plan.frozen() {
            Some(plan) => plan?,
            None if grant.requires.plan => return Err(Stop::ContextMissing("plan".to_owned())),
            None => return Ok(()),
        };
        let key = key_of(self.call, self.operation, &self.account, &self.resolved, 0)?;
        let Some(frozen) = plan.effect(&key.0) else {
            return Err(Stop::PlanMismatch("This effect is not part of the plan; nothing was sent.".to_owned()));
        };
        if frozen.recipe != self.recipe || frozen.operation != self.operation.name {
            return Err(Stop::PlanMismatch(
                "The plan was frozen with a tool that identifies this effect in another way; nothing was sent."
                    .to_owned(),
            ));
        }
        let differing = frozen.differing(&self.resolved);
        if !differing.is_empty() {
            return Err(Stop::PlanMismatch(format!(
                "The plan has other values of {}; nothing was sent.",
                differing.join(", ")
            )));
        }
        // Frozen once: a second event in the stream would mean that it was not.
        passage.also.push(Append::guard(Plan::stream(&plan.document.plan), Expect::Version(1)));
        Ok(())
    }
}
