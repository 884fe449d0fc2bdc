//! Publishes a post on a board that asks a question first: one effect makes the post, a second one,
//! which answers the question, makes it public.
//!
//! The host keeps the board's answer before this code sees it. When the program is killed between the
//! two, the next call is given the same question again and goes on from there.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use exports::acme::posts::posts::{Guest, Post};
use oncegate::effect::effect;
use oncegate::effect::types::{Field, Response, Settlement, Value};

// In a crate of your own: a copy of Oncegate's `wit` folder, then yours.
wit_bindgen::generate!({
    path: ["../../wit", "wit"],
    world: "acme:posts/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Posts;
export!(Posts);

/// The board's answer to a post, as far as this tool reads it.
#[derive(Deserialize)]
struct Created {
    id: String,
    challenge: Challenge,
}

#[derive(Deserialize)]
struct Challenge {
    text: String,
}

/// The board's answer to an answer.
#[derive(Deserialize)]
struct Published {
    post: String,
}

impl Guest for Posts {
    fn publish_post(_board: String, text: String) -> Result<Post, String> {
        // The host takes `board` from the tool's argument, as the contract says.
        let created = perform("create-post", &[Field { name: "text".into(), value: Value::Text(text) }])?;
        let Created { id, challenge } = read(&created)?;
        if created.settled == Settlement::Done {
            return Ok(Post { id, public: true });
        }
        let answer = sum(&challenge.text).ok_or_else(|| "the board asks something else than a sum".to_owned())?;
        // `code` and `post` come from the board's own answer, as the contract says.
        let published = perform("answer-challenge", &[Field { name: "answer".into(), value: Value::Integer(answer) }])?;
        let Published { post } = read(&published)?;
        Ok(Post { id: post, public: true })
    }
}

/// Performs an operation that the board did not refuse.
fn perform(operation: &str, fields: &[Field]) -> Result<Response, String> {
    let answer = effect::perform(operation, fields).map_err(|error| format!("{operation} has no answer: {error:?}"))?;
    match answer.settled {
        Settlement::NoEffect => Err(format!("{operation}: the board refused with status {}", answer.status)),
        Settlement::None | Settlement::Done => Ok(answer),
    }
}

fn read<T: DeserializeOwned>(answer: &Response) -> Result<T, String> {
    serde_json::from_slice(&answer.body).map_err(|error| format!("the answer is not what this tool reads: {error}"))
}

/// The sum of all numbers in a question such as "How much are forty-seven and three?".
fn sum(question: &str) -> Option<i64> {
    let words = question.split(|letter: char| !letter.is_ascii_alphabetic());
    let numbers: Vec<i64> = words.filter_map(number).collect();
    if numbers.is_empty() { None } else { Some(numbers.iter().sum()) }
}

fn number(word: &str) -> Option<i64> {
    const UNITS: [&str; 9] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    let place = |list: &[&str]| list.iter().position(|known| *known == word).and_then(|place| i64::try_from(place).ok());
    place(&UNITS).map(|unit| unit + 1).or_else(|| place(&TENS).map(|ten| (ten + 2) * 10))
}
