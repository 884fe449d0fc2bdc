//! Which fetch, and which element under `*`, the values come from. Doubt is an error, never a choice.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::judge::{Finished, Judged, judge, read};
use crate::error::FieldError;
use crate::field::{Currency, Field, Rule};
use crate::limits::ELEMENTS_MAX;
use crate::pointer::Pointer;
use crate::value::Value;

/// The values of one group, and the fetch they came from.
pub(super) struct Chosen<'a> {
    pub(super) fetch: Option<u32>,
    pub(super) values: Vec<(&'a str, Option<Finished>)>,
}

/// Chooses among the documents: those that agree with every copy of the guest stay, and all that
/// stay must say the same.
pub(super) fn choose<'a>(
    fields: &[&'a Field],
    given: &BTreeMap<&str, &Value>,
    documents: &[(Option<u32>, &Json)],
    known: &dyn Fn(&str) -> Option<String>,
) -> Result<Chosen<'a>, FieldError> {
    let mut first_error = None;
    let mut left: Vec<(Option<u32>, Vec<Judged>)> = Vec::new();
    for (fetch, document) in documents {
        let reading = Reading { fields, given, document, known };
        match reading.read() {
            Ok(values) => left.push((*fetch, values)),
            Err(Refused::Differs(error)) => first_error = first_error.or(Some(error)),
            Err(Refused::Ambiguous(error)) => return Err(error),
        }
    }
    let Some((fetch, values)) = left.last() else {
        return Err(first_error.unwrap_or_else(|| FieldError::invalid("fields", "no source has a value")));
    };
    for (_, other) in &left {
        for ((field, a), b) in fields.iter().zip(values).zip(other) {
            if let Some(above) = &b.above {
                return Err(FieldError::invalid(&field.name, above.clone()));
            }
            if a.value != b.value {
                let message = "ambiguous: the lookups of this call disagree; give the key fields so that one is chosen";
                return Err(FieldError::invalid(&field.name, message));
            }
        }
    }
    let named = fields.iter().zip(values).map(|(field, judged)| (field.name.as_str(), judged.value.clone()));
    Ok(Chosen { fetch: *fetch, values: named.collect() })
}

/// Why a document is not the source.
enum Refused {
    /// It lacks a value or contradicts a copy; another document may be meant.
    Differs(FieldError),
    /// It agrees in more than one way.
    Ambiguous(FieldError),
}

struct Reading<'a, 'b> {
    fields: &'b [&'a Field],
    given: &'b BTreeMap<&'b str, &'b Value>,
    document: &'b Json,
    known: &'b dyn Fn(&str) -> Option<String>,
}

impl Reading<'_, '_> {
    fn read(&self) -> Result<Vec<Judged>, Refused> {
        let mut found: BTreeMap<usize, Judged> = BTreeMap::new();
        let mut arrays: BTreeMap<Pointer, Vec<(usize, Pointer)>> = BTreeMap::new();
        for (i, field) in self.fields.iter().enumerate() {
            match self.element_pointer(field) {
                Some((array, inner)) => arrays.entry(array).or_default().push((i, inner)),
                None => {
                    let raw = field.pointer().and_then(|pointer| pointer.get(self.document));
                    found.insert(i, self.judge(field, raw, None).map_err(Refused::Differs)?);
                }
            }
        }
        for (array, members) in arrays {
            found.extend(self.element(&array, &members)?);
        }
        Ok(found.into_values().collect())
    }

    /// Array and inner pointer, under `*` and where `one-of` names an array.
    fn element_pointer(&self, field: &Field) -> Option<(Pointer, Pointer)> {
        let pointer = field.pointer()?;
        let one_of_array = field.rule == Rule::OneOf && pointer.get(self.document).is_some_and(Json::is_array);
        if one_of_array { Some((pointer.clone(), Pointer::of_names(Vec::new()))) } else { pointer.split_any() }
    }

    /// The one way to read the fields of one array; equal elements are one way.
    fn element(&self, array: &Pointer, members: &[(usize, Pointer)]) -> Result<Vec<(usize, Judged)>, Refused> {
        let name = members.first().and_then(|(i, _)| self.fields.get(*i)).map_or("", |f| f.name.as_str());
        let differs = |message: String| Refused::Differs(FieldError::invalid(name, message));
        let Some(Json::Array(elements)) = array.get(self.document) else {
            return Err(differs(format!("its source has no list at {array}")));
        };
        if elements.len() > ELEMENTS_MAX {
            return Err(differs(format!("its source has more than {ELEMENTS_MAX} elements at {array}")));
        }
        let mut first_error = None;
        let mut ways: Vec<Vec<(usize, Judged)>> = Vec::new();
        for element in elements {
            let mut judged = members.iter().map(|(i, inner)| {
                let field = self.fields.get(*i).ok_or_else(|| FieldError::invalid(name, "unknown"))?;
                Ok((*i, self.judge(field, inner.get(element), Some((array, element)))?))
            });
            match judged.by_ref().collect::<Result<Vec<_>, FieldError>>() {
                Ok(way) if ways.contains(&way) => {}
                Ok(way) => {
                    ways.push(way);
                    if ways.len() > 1 {
                        break;
                    }
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match (ways.pop(), ways.is_empty()) {
            (Some(way), true) => Ok(way),
            (Some(_), false) => Err(Refused::Ambiguous(FieldError::invalid(
                name,
                format!(
                    "ambiguous: more than one element at {array} is possible; the guest gives the value that chooses one"
                ),
            ))),
            (None, _) => {
                let empty = || FieldError::invalid(name, format!("its source has an empty list at {array}"));
                Err(Refused::Differs(first_error.unwrap_or_else(empty)))
            }
        }
    }

    fn judge(
        &self,
        field: &Field,
        raw: Option<&Json>,
        element: Option<(&Pointer, &Json)>,
    ) -> Result<Judged, FieldError> {
        let currency = self.currency(field, element)?;
        let copy = self.given.get(field.name.as_str()).copied();
        judge(field, read(field, raw)?, copy, currency.as_deref())
    }

    /// The currency beside the amount: of the same element or document, or resolved before.
    fn currency(&self, field: &Field, element: Option<(&Pointer, &Json)>) -> Result<Option<String>, FieldError> {
        let name = match &field.currency {
            None => return Ok(None),
            Some(Currency::Code(code)) => return Ok(Some(code.clone())),
            Some(Currency::Field(name)) => name,
        };
        let Some(other) = self.fields.iter().find(|f| f.name == *name) else {
            return Ok((self.known)(name));
        };
        let beside = match (self.element_pointer(other), element) {
            (None, _) => other.pointer().and_then(|pointer| pointer.get(self.document)),
            (Some((array, inner)), Some((here, element))) if array == *here => inner.get(element),
            _ => {
                return Err(FieldError::invalid(&field.name, "its currency is in another list"));
            }
        };
        Ok(beside.and_then(Json::as_str).map(str::to_owned))
    }
}
