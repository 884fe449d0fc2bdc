//! Datasets: the rows of a file, imported as often as they are sent, and deleted by identifier.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::domains::{Effect, World};
use super::http::{Reply, Request};

impl World {
    /// Imports a file; nothing is compared with what is there.
    pub(super) fn import(&mut self, request: &Request, now_ms: u64) -> Reply {
        let Ok(mut object) = serde_json::from_slice::<Value>(&request.body) else {
            return Reply::error(400, "bad_json", "the body is no JSON document");
        };
        let Some(file) = object["file"].as_str().and_then(|file| STANDARD.decode(file).ok()) else {
            return Reply::error(400, "missing_field", "`file` has to be base64");
        };
        let digest: String = Sha256::digest(&file).iter().map(|byte| format!("{byte:02x}")).collect();
        if object["digest"] != digest.as_str() {
            return Reply::error(400, "wrong_digest", "the file is another than its digest says");
        }
        object["object"] = json!("dataset");
        object["rows"] = json!(file.split(|byte| *byte == b'\n').filter(|row| !row.is_empty()).count());
        object.as_object_mut().map(|object| object.remove("file"));
        if self.settings.dataset_by_name {
            object["id"] = json!(format!("by-name-{}", object["name"].as_str().unwrap_or_default()));
        }
        Reply::json(200, &self.record("dataset", &mut object, now_ms))
    }

    /// Deletes the dataset with the identifier in the path: 204, and 404 once it is gone.
    pub(super) fn delete(&mut self, request: &Request, now_ms: u64) -> Reply {
        let id = request.last_segment();
        let there = self.effects.iter().any(|one| one.kind == "dataset" && one.id == id && !self.is_deleted(one));
        if !there {
            return Reply::error(404, "not_found", "there is no dataset with this id");
        }
        self.record("deletion", &mut json!({ "object": "deletion", "dataset": id }), now_ms);
        Reply { status: 204, headers: Vec::new(), body: Vec::new() }
    }

    /// Whether a dataset was deleted: a deletion is behind it that names it.
    pub(super) fn is_deleted(&self, dataset: &Effect) -> bool {
        let place = self.effects.iter().position(|one| std::ptr::eq(one, dataset));
        let later = place.map_or(&[][..], |place| &self.effects[place..]);
        dataset.kind == "dataset"
            && later.iter().any(|one| one.kind == "deletion" && one.object["dataset"] == dataset.id.as_str())
    }
}
