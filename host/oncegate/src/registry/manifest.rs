//! The manifest of a component in a registry, in the form that the CNCF's guidance for WebAssembly gives:
//! one layer `application/wasm`, and a configuration that describes the component.

use std::fmt::Write as _;

use anyhow::{Context, bail, ensure};
use oncegate_sandbox::describe::Description;
use oncegate_sandbox::limits::COMPONENT_BYTES_MAX;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
const LAYER_TYPE: &str = "application/wasm";
/// What carries a detached signature: the text of COMPONENT.minisig. The digest of the manifest covers it.
const SIGNATURE: &str = "dev.oncegate.minisig";

/// What a manifest names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// `sha256:` and hexadecimal digits of the component.
    pub(crate) component: String,
    /// Its bytes, as the manifest says.
    pub(crate) size: u64,
    /// The signature that goes with it.
    pub(crate) signature: Option<String>,
}

/// `sha256:` and 64 hexadecimal digits.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::from("sha256:"), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Manifest {
    /// Reads a manifest whose digest was checked; what it says is still anybody's.
    pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let manifest: Value = serde_json::from_slice(bytes).context("the manifest is no JSON")?;
        if manifest["manifests"].is_array() {
            bail!("this is an index of several artifacts; name the one of the component by its own digest");
        }
        let layers = manifest["layers"].as_array().context("the manifest has no layers")?;
        let [layer] = &layers[..] else {
            bail!("the manifest has {} layers; a component is one layer {LAYER_TYPE}", layers.len());
        };
        let kind = layer["mediaType"].as_str().unwrap_or_default();
        ensure!(kind == LAYER_TYPE, "the layer is {kind:?} and no component ({LAYER_TYPE})");
        let component = layer["digest"].as_str().unwrap_or_default();
        ensure!(
            oncegate_sandbox::policy::digest_of(component).is_some() && component == component.to_lowercase(),
            "the layer has no digest of sha256"
        );
        let size = layer["size"].as_u64().context("the layer has no size")?;
        ensure!(
            size <= COMPONENT_BYTES_MAX as u64,
            "the layer has {size} bytes by its manifest, and no component has more than {COMPONENT_BYTES_MAX}"
        );
        let signature = manifest["annotations"][SIGNATURE].as_str().map(str::to_owned);
        Ok(Self { component: component.to_owned(), size, signature })
    }
}

/// The configuration and the manifest for a component.
pub(super) fn made(
    description: &Description,
    bytes: &[u8],
    signature: Option<&str>,
    created: &str,
) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let digest = digest_of(bytes);
    let imports: Vec<&str> = description.imports.iter().map(|import| import.name.as_str()).collect();
    let exports: Vec<&str> = description.tools.iter().map(|tool| tool.name.as_str()).collect();
    let config = json!({
        "created": created, "architecture": "wasm", "os": "wasip2", "layerDigests": [digest],
        "component": { "imports": imports, "exports": exports, "target": description.world },
    });
    let config = serde_json::to_vec(&config)?;
    let mut manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": { "mediaType": CONFIG_TYPE, "digest": digest_of(&config), "size": config.len() },
        "layers": [{ "mediaType": LAYER_TYPE, "digest": digest, "size": bytes.len() }],
        "annotations": { "org.opencontainers.image.title": description.name },
    });
    if let Some(signature) = signature {
        manifest["annotations"][SIGNATURE] = signature.into();
    }
    Ok((config, serde_json::to_vec(&manifest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(layers: &Value) -> anyhow::Result<Manifest> {
        Manifest::parse(json!({ "schemaVersion": 2, "layers": layers }).to_string().as_bytes())
    }

    #[test]
    fn a_manifest_names_one_component() {
        let digest = digest_of(b"x");
        let good = json!([{ "mediaType": LAYER_TYPE, "digest": digest, "size": 1 }]);
        assert_eq!(manifest(&good).unwrap(), Manifest { component: digest.clone(), size: 1, signature: None });
        let layer =
            |kind: &str, digest: &str, size: Value| json!({ "mediaType": kind, "digest": digest, "size": size });
        for (layers, why) in [
            (json!([]), "0 layers"),
            (json!([good[0], good[0]]), "2 layers"),
            (json!([layer("application/vnd.oci.image.layer.v1.tar", &digest, json!(1))]), "no component"),
            (json!([layer(LAYER_TYPE, "sha256:../../etc/passwd", json!(1))]), "no digest"),
            (json!([layer(LAYER_TYPE, &digest, json!(-1))]), "no size"),
            (json!([layer(LAYER_TYPE, &digest, json!(u64::MAX))]), "no component has more"),
        ] {
            let error = manifest(&layers).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(Manifest::parse(b"[").is_err());
        assert!(Manifest::parse(br#"{"manifests":[]}"#).unwrap_err().to_string().contains("index"));
    }
}
