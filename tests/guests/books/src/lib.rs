//! A guest without a contract of its own: tests of databases pack it with theirs.

use exports::test::books::books::{Argument, Given, Guest, Question};
use oncegate::effect::lookup;
use oncegate::effect::types::{Field, Value};

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "test:books/tool",
    generate_all,
});

struct Books;
export!(Books);

impl Guest for Books {
    fn ask(questions: Vec<Question>) -> Vec<String> {
        questions.into_iter().map(answer).collect()
    }
}

fn answer(question: Question) -> String {
    let fields: Vec<Field> = question.fields.into_iter().map(field).collect();
    match lookup::fetch(&question.operation, &fields) {
        Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
        Err(error) => format!("error: {error:?}"),
    }
}

fn field(argument: Argument) -> Field {
    let value = match argument.value {
        Given::Text(text) => Value::Text(text),
        Given::Integer(number) => Value::Integer(number),
        Given::Decimal(text) => Value::Decimal(text),
        Given::Truth(truth) => Value::Boolean(truth),
        Given::Bytes(bytes) => Value::Bytes(bytes),
    };
    Field { name: argument.name, value }
}
