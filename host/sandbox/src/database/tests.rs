//! What a database's answer is, whoever gave it.

use super::rows::Rows;
use super::*;

fn filled(rows_max: u32, bytes_max: usize, count: i64) -> serde_json::Value {
    let mut rows = Rows::new(vec!["a".into(), "b".into()], rows_max, bytes_max).unwrap();
    for number in 0..count {
        if !rows.push(vec![number.into(), "x".into()]) {
            break;
        }
    }
    serde_json::from_slice(&rows.finish()).unwrap()
}

#[test]
fn an_answer_is_whole_json_up_to_its_caps() {
    assert_eq!(filled(10, 1 << 20, 0).to_string(), r#"{"rows":[],"truncated":false}"#);
    let two = filled(10, 1 << 20, 2).to_string();
    assert_eq!(two, r#"{"rows":[{"a":0,"b":"x"},{"a":1,"b":"x"}],"truncated":false}"#);
    assert_eq!(filled(2, 1 << 20, 2)["truncated"], false);
    assert_eq!(filled(2, 1 << 20, 3)["truncated"], true);
    let small = filled(1_000, 100, 1_000);
    assert!(small["truncated"] == true && small.to_string().len() < 130, "{small}");
}

#[test]
fn a_column_that_stands_twice_is_refused() {
    assert!(matches!(Rows::new(vec!["a".into(), "a".into()], 1, 1), Err(DatabaseError::Unusable(_))));
}

#[tokio::test]
async fn an_answer_is_kept_in_a_form_that_reads_back() {
    let body = filled(10, 1 << 20, 2).to_string().into_bytes();
    let read = crate::http::parse("SQL", &raw(&body), true).await.unwrap();
    assert_eq!(read, answer(body));
}

#[test]
fn guests_hear_codes_and_no_addresses() {
    let unreachable = DatabaseError::Unreachable("10.0.0.1: connection refused".to_owned());
    assert!(!unreachable.stop().to_string().contains("10.0.0.1"));
    let refused = DatabaseError::refused("42501", "permission denied for table salaries\u{7}");
    assert_eq!(refused.stop().to_string(), "the database refused, with code 42501");
    assert!(!refused.to_string().contains('\u{7}'));
}
