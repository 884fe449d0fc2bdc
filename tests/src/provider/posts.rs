//! Posts: each is answered with a one-shot challenge, and is public only once that was answered in time.
//! No post can be read back, and the same bytes a second time are swallowed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::domains::World;
use super::http::{Reply, Request};

/// What the provider keeps of its posts.
#[derive(Debug, Default)]
pub(super) struct Posts {
    /// The bodies that it has taken.
    taken: BTreeSet<Vec<u8>>,
    /// By its code; a challenge that was answered, rightly or not, is gone.
    challenges: BTreeMap<String, Challenge>,
}

#[derive(Debug)]
struct Challenge {
    post: String,
    sum: u64,
    until_ms: u64,
}

/// Tens and units of a number, in words.
const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const UNITS: [&str; 9] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

impl World {
    /// Takes a post and asks for a sum; `post` is counted, `publication` is not yet.
    pub(super) fn post(&mut self, request: &Request, now_ms: u64) -> Reply {
        let Ok(mut object) = serde_json::from_slice::<Value>(&request.body) else {
            return Reply::error(400, "bad_json", "the body is no JSON document");
        };
        if !object["board"].is_string() || !object["text"].is_string() {
            return Reply::error(400, "missing_field", "`board` and `text` have to be texts");
        }
        if !self.posts.taken.insert(request.body.clone()) {
            let first =
                self.effects.iter().find(|effect| effect.kind == "post" && effect.object["text"] == object["text"]);
            return Reply::json(200, &json!({ "already_existed": true, "id": first.map(|effect| effect.id.as_str()) }));
        }
        object["object"] = json!("post");
        let post = self.record("post", &mut object, now_ms);
        let id = post["id"].as_str().unwrap_or_default().to_owned();
        let made = self.count("post");
        let code = format!("vc_{made:06}");
        let (tens, unit) = (made % TENS.len(), made % UNITS.len());
        let lie = u64::from(self.settings.challenge_lies);
        let sum = ((tens + 2) * 10 + 7 + unit + 1) as u64 + lie;
        let until_ms = now_ms + self.settings.challenge_ms;
        self.posts.challenges.insert(code.clone(), Challenge { post: id.clone(), sum, until_ms });
        let text = format!("How much are {}-seven and {}?", TENS[tens], UNITS[unit]);
        let challenge = json!({ "code": code, "text": text, "valid_ms": self.settings.challenge_ms });
        Reply::json(201, &json!({ "object": "post", "id": id, "state": "pending", "challenge": challenge }))
    }

    /// Takes the answer to a challenge; a right one in time makes the post public.
    pub(super) fn publish(&mut self, request: &Request, now_ms: u64) -> Reply {
        let answer: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let code = answer["code"].as_str().unwrap_or_default();
        let Some(challenge) = self.posts.challenges.remove(code).filter(|challenge| now_ms <= challenge.until_ms)
        else {
            return Reply::error(410, "challenge_gone", "this challenge was answered, or is too old");
        };
        if answer["post"] != challenge.post.as_str() || answer["answer"].as_u64() != Some(challenge.sum) {
            return Reply::error(403, "wrong_answer", "that is not the answer");
        }
        let mut object = json!({ "object": "publication", "post": challenge.post });
        Reply::json(200, &self.record("publication", &mut object, now_ms))
    }
}
