//! Components in OCI registries: named by digest, checked by us, kept in the data directory.
//!
//! What a registry says of what it sends is not believed. The manifest is the one whose digest was asked
//! for, the component the one that the manifest names, by digests that are computed here from what came,
//! and nothing larger than a component is taken. Each use checks the kept files again.

mod access;
mod client;
mod manifest;
mod shelf;

pub(crate) use access::Access;
pub(crate) use client::Client;
pub(crate) use manifest::digest_of;
pub(crate) use shelf::Shelf;

use anyhow::{Context, bail, ensure};
use oci_client::Reference;

use crate::exit::usage;

/// What a component's name begins with where it is in a registry.
const SCHEME: &str = "oci://";

/// The reference in a component's name, if it is one.
pub(crate) fn reference(name: &str) -> Option<anyhow::Result<Reference>> {
    name.strip_prefix(SCHEME).map(parse)
}

/// A reference with a registry in it: none is guessed.
pub(crate) fn parse(text: &str) -> anyhow::Result<Reference> {
    let text = text.strip_prefix(SCHEME).unwrap_or(text);
    let registry = text.split_once('/').map_or("", |(registry, _)| registry);
    if registry != "localhost" && !registry.contains(['.', ':']) {
        return Err(usage(format!("{text:?} names no registry; write it as oci://REGISTRY/REPOSITORY@sha256:DIGEST")));
    }
    let reference = Reference::try_from(text).with_context(|| format!("{text:?} is no reference to a registry"))?;
    let sha256 = reference.digest().is_none_or(|digest| digest.starts_with("sha256:"));
    ensure!(sha256, "{text:?} has a digest that is not of sha256");
    Ok(reference)
}

/// The same thing by its digest alone, as it can be pinned.
pub(crate) fn pinned(reference: &Reference, digest: &str) -> String {
    format!("{SCHEME}{}/{}@{digest}", reference.registry(), reference.repository())
}

/// What may not be run: a tag names another thing whenever somebody wants it to.
pub(crate) async fn refuse_tag(client: &Client, reference: &Reference) -> anyhow::Result<String> {
    if let Some(digest) = reference.digest() {
        return Ok(digest.to_owned());
    }
    let manifest = client.manifest(reference).await?;
    bail!(
        "{SCHEME}{reference} names no digest, so it was not run: a tag can name another component at any time. It names {} now",
        pinned(reference, &digest_of(&manifest))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_its_registry() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for good in ["oci://r.example/tools/refunds:1", "localhost/x:1", "127.0.0.1:5000/x/y"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        let pinned_one = parse(&format!("oci://r.example/x@{digest}")).unwrap();
        assert_eq!(pinned_one.digest(), Some(digest.as_str()));
        assert_eq!(pinned(&pinned_one, &digest), format!("oci://r.example/x@{digest}"));
        let other = format!("r.example/x@sha512:{}", "a".repeat(128));
        for wrong in ["oci://refunds", "oci://refunds:1", "tools/refunds", "oci://", "oci://r.example/UPPER", &other] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(reference("refunds.wasm").is_none());
    }
}
