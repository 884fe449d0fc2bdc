//! `oncegate permit`: granting, listing and revoking permits.

mod shown;

use anyhow::{Context, bail};
use oncegate_contract::safe_text;
use oncegate_ledger::{Event, Ledger, LedgerError, PAGE_MAX, StreamKind};
use oncegate_sandbox::permit::{self, Decision, Granted, Sum};

use crate::args::permit::{By, Grant, Permit, PermitCommand};
use crate::exit::{Exit, usage};
use crate::home::{Home, now_ms};

pub(crate) async fn run(home: &Home, args: Permit) -> anyhow::Result<Exit> {
    match args.command {
        PermitCommand::Grant(args) => grant(home, args).await,
        PermitCommand::List { tenant } => list(home, tenant.as_deref()).await,
        PermitCommand::Revoke { id, tenant, by } => revoke(home, &id, tenant.as_deref(), by).await,
    }
}

async fn grant(home: &Home, args: Grant) -> anyhow::Result<Exit> {
    let decision = decision(&args.by)?;
    let wanted = wanted(&args, decision.at)?;
    let ledger = home.ledger().await?;
    let failed = || format!("the permit {} cannot be granted", wanted.id);
    let before = permit::find(&*ledger, &wanted.tenant, &wanted.id).await.with_context(failed)?;
    if let Some(before) = before {
        return again(home, &before, &wanted, decision.at);
    }
    match ledger.append(wanted.grant(&decision)).await {
        Err(LedgerError::Conflict { .. }) => bail!("the permit {} was granted by somebody else just now", wanted.id),
        other => other.with_context(failed)?,
    };
    let found = permit::find(&*ledger, &wanted.tenant, &wanted.id).await.with_context(failed)?;
    shown::one(home, &found.with_context(failed)?, "granted")?;
    Ok(Exit::Ok)
}

/// Granted before: the same once more is the same, also with the same time to go; anything else is
/// another permit.
fn again(home: &Home, before: &Granted, wanted: &permit::Permit, now: u64) -> anyhow::Result<Exit> {
    let to_go = |expires: Option<u64>, from: u64| expires.map(|at| at.saturating_sub(from));
    let same = to_go(before.permit.expires, before.granted.at) == to_go(wanted.expires, now);
    let expires = if same { before.permit.expires } else { wanted.expires };
    if before.revoked.is_some() || before.permit != (permit::Permit { expires, ..wanted.clone() }) {
        let state = if before.revoked.is_some() { "and revoked " } else { "with other bounds " };
        bail!("the permit {} was granted {state}before, and a permit is never changed; give another name", wanted.id);
    }
    shown::one(home, before, "granted before")?;
    Ok(Exit::Ok)
}

fn wanted(args: &Grant, now: u64) -> anyhow::Result<permit::Permit> {
    let names = [("ID", Some(&args.id)), ("--tenant", Some(&args.tenant))];
    let options = [("--owner", args.owner.as_ref()), ("--grant", args.grant.as_ref())];
    let operations = args.operations.iter().map(|name| ("--operation", Some(name)));
    for (option, name) in names.into_iter().chain(options).chain(operations) {
        if let Some(name) = name.filter(|name| safe_text(name) != **name) {
            return Err(usage(format!("{option} {name:?}: expected letters, digits and . _ : @ + - only")));
        }
    }
    if let Some(digest) = &args.component
        && oncegate_sandbox::policy::digest_of(digest).is_none()
    {
        return Err(usage(format!("--component {digest:?}: expected `sha256:` and 64 hexadecimal digits")));
    }
    let mut sums: Vec<Sum> = Vec::new();
    for text in &args.sums {
        let sum = Sum::parse(text).map_err(|why| usage(format!("--sum {text:?}: {why}")))?;
        if sums.iter().any(|known| known.field == sum.field) {
            return Err(usage(format!("--sum {text:?}: the field {} has a sum already", sum.field)));
        }
        sums.push(sum);
    }
    let expires = args
        .expires
        .as_deref()
        .map(|text| permit::expiry(text, now).map_err(|why| usage(format!("--expires {text:?}: {why}"))));
    Ok(permit::Permit {
        id: args.id.clone(),
        tenant: args.tenant.clone(),
        grant: args.grant.clone().unwrap_or_else(|| args.id.clone()),
        component: args.component.as_ref().map(|digest| digest.to_lowercase()),
        owner: args.owner.clone(),
        operations: args.operations.clone(),
        count: args.count,
        sums,
        expires: expires.transpose()?,
    })
}

fn decision(by: &By) -> anyhow::Result<Decision> {
    let said = |option: &str, text: &str, otherwise: &str| match text.trim() {
        "" => Err(usage(format!("{option} is empty: {otherwise}"))),
        text => Ok(text.to_owned()),
    };
    let actor = said("--actor", by.actor.as_deref().unwrap_or_default(), "say who decides this")?;
    Ok(Decision { actor, reason: said("--reason", &by.reason, "say why")?, at: now_ms() })
}

async fn list(home: &Home, tenant: Option<&str>) -> anyhow::Result<Exit> {
    let ledger = home.ledger_for_reading().await?;
    let found = all(&*ledger).await.context("the permits cannot be read")?;
    let found: Vec<Granted> =
        found.into_iter().filter(|one| tenant.is_none_or(|tenant| one.permit.tenant == tenant)).collect();
    let mut rows = Vec::new();
    for one in found {
        let left = one.left(&*ledger).await.context("a permit's balances cannot be read")?;
        rows.push((one, left));
    }
    shown::all(home, &rows)?;
    Ok(Exit::Ok)
}

/// Every permit, the first granted first. There is no index of them: they are few, and this is asked by
/// people.
async fn all(ledger: &dyn Ledger) -> Result<Vec<Granted>, LedgerError> {
    let (mut from, mut found) = (0, Vec::new());
    loop {
        let page = ledger.scan(from, PAGE_MAX).await?;
        let Some(last) = page.last() else { return Ok(found) };
        from = last.seq + 1;
        for record in page.iter().filter(|record| record.stream.kind == StreamKind::Permit) {
            let document = matches!(&record.event, Event::PermitGranted { document, .. } if !document.is_empty());
            if document {
                found.extend(permit::granted(ledger, &ledger.read(record.stream).await?).await?);
            }
        }
    }
}

async fn revoke(home: &Home, id: &str, tenant: Option<&str>, by: By) -> anyhow::Result<Exit> {
    let decision = decision(&by)?;
    let ledger = home.ledger().await?;
    let failed = || format!("the permit {} cannot be revoked", safe_text(id));
    let named = match tenant {
        Some(tenant) => permit::find(&*ledger, tenant, id).await.with_context(failed)?.into_iter().collect(),
        None => {
            let mut all = all(&*ledger).await.with_context(failed)?;
            all.retain(|one| one.permit.id == id);
            all
        }
    };
    let found = match &named[..] {
        [] => bail!("there is no permit {}", safe_text(id)),
        [one] => one,
        many => {
            let tenants: Vec<&str> = many.iter().map(|one| one.permit.tenant.as_str()).collect();
            return Err(usage(format!(
                "{} tenants have a permit of this name: say --tenant {}",
                many.len(),
                tenants.join(" or --tenant ")
            )));
        }
    };
    if found.revoked.is_some() {
        shown::one(home, found, "revoked before")?;
        return Ok(Exit::Ok);
    }
    ledger.append(found.revoke(&decision)).await.with_context(failed)?;
    let after = permit::find(&*ledger, &found.permit.tenant, id).await.with_context(failed)?;
    shown::one(home, &after.with_context(failed)?, "revoked")?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Usage;

    fn args() -> Grant {
        Grant {
            id: "spring".into(),
            tenant: "acme".into(),
            component: None,
            owner: None,
            operations: vec!["create-refund".into()],
            count: Some(3),
            sums: vec!["amount=500".into()],
            expires: Some("7d".into()),
            grant: None,
            by: By { reason: "recall".into(), actor: Some("ada".into()) },
        }
    }

    #[test]
    fn a_permit_is_what_was_said() {
        let permit = wanted(&args(), 1_000).unwrap();
        assert_eq!(permit.grant, "spring");
        assert_eq!(permit.expires, Some(1_000 + 7 * 86_400_000));
        assert_eq!(permit.sums, [Sum { field: "amount".into(), max: 500, currency: None }]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let twice = vec!["amount=1".into(), "amount=2".into()];
        for wrong in [
            Grant { id: "a b".into(), ..args() },
            Grant { operations: vec!["*".into()], ..args() },
            Grant { sums: vec!["amount".into()], ..args() },
            Grant { sums: vec!["amount=-1".into()], ..args() },
            Grant { sums: twice, ..args() },
            Grant { expires: Some("1970-01-01".into()), ..args() },
            Grant { expires: Some("soon".into()), ..args() },
            Grant { component: Some("abc".into()), ..args() },
        ] {
            let error = wanted(&wrong, 1_000).unwrap_err();
            assert!(error.downcast_ref::<Usage>().is_some(), "{wrong:?}: {error}");
        }
        let nobody = By { reason: " ".into(), actor: Some("ada".into()) };
        assert!(decision(&nobody).is_err());
    }
}
