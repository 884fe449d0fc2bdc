//! Which account this is, by the provider's own word: asked once for each credential.

use std::collections::BTreeMap;

use oncegate_contract::EffectClass;

use super::Wanted;
use crate::call::{denied, field_stop};
use crate::host::digest;
use crate::limits::LOOKUP_BYTES_MAX;
use crate::lookup;
use crate::policy::{AccountIs, Grant};
use crate::stop::Stop;

/// Bytes of an account's identifier.
const PROOF_BYTES_MAX: usize = 512;

impl Wanted<'_> {
    /// What the provider says the account is, where the policy has it asked.
    pub(super) async fn proven_account(&self, grant: &Grant) -> Result<Option<String>, Stop> {
        let host = &self.call.host;
        let endpoint = host.policy.endpoints.get(&self.operation.endpoint);
        let Some(asked) = endpoint.and_then(|endpoint| endpoint.account_is.as_ref()) else { return Ok(None) };
        let version = lookup::secret(grant).await?.map(|secret| host.cache.version_of(secret.bytes()));
        let tenant = self.call.tenant().as_bytes();
        let names = [&self.operation.endpoint, &grant.url, &asked.operation].map(|name| name.as_bytes());
        let place = asked.at.to_string();
        let id = digest(&[
            names[0],
            names[1],
            names[2],
            place.as_bytes(),
            tenant,
            &version.map_or(Vec::new(), |version| version.to_vec()),
        ]);
        if let Some(known) = host.account(&id) {
            return Ok(Some(known));
        }
        let told = self.ask_account(asked).await?;
        host.keep_account(id, &told);
        Ok(Some(told))
    }

    async fn ask_account(&self, asked: &AccountIs) -> Result<String, Stop> {
        let lookup = self.call.contract().operations.get(&asked.operation);
        let lookup =
            lookup.filter(|lookup| lookup.effect == EffectClass::None && lookup.endpoint == self.operation.endpoint);
        let lookup = lookup.ok_or_else(|| {
            Stop::NotSetUp(format!("the policy's account-is names {}, no lookup at this endpoint", asked.operation))
        })?;
        let grant = self.call.grant(lookup).map_err(denied)?.staying();
        let tenant = self.call.tenant();
        let context = BTreeMap::from([("tenant".to_owned(), tenant.to_owned())]);
        let fields = oncegate_contract::resolve_host(lookup, &context, &[]).map_err(field_stop)?;
        let found = lookup::send(&self.call.host, lookup, &grant, &fields, tenant, LOOKUP_BYTES_MAX).await?;
        let body = oncegate_contract::parse_json(&found.answer.body).unwrap_or_default();
        let told = match asked.at.get(&body) {
            Some(serde_json::Value::String(text)) => Some(text.clone()),
            Some(serde_json::Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let told = told.filter(|text| !text.is_empty() && text.len() <= PROOF_BYTES_MAX);
        let found = oncegate_contract::found(lookup, &found.answer);
        told.filter(|_| found)
            .ok_or_else(|| Stop::Unavailable("the provider did not say which account it is".to_owned()))
    }
}
