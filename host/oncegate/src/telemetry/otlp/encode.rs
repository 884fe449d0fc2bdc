//! Spans and figures as OTLP's messages.

use std::time::{SystemTime, UNIX_EPOCH};

use oncegate_sandbox::meter::family::{Distribution, Family, Kind, Series, Value};

use super::messages::{
    AnyValue, AnyWord, Data, Gauge, Histogram, HistogramPoint, KeyValue, Metric, Metrics, Point, Resource,
    ResourceMetrics, ResourceSpans, Scope, ScopeMetrics, ScopeSpans, Span, Status, Sum, Temporality, Traces,
};
use crate::telemetry::spans::{Attribute, Finished, Word};

const SCOPE: &str = "oncegate";
/// A span's trace is kept.
const SAMPLED: u32 = 1;
/// It is known whether its parent is another process's.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
const ERROR: i32 = 2;
const NANOSECONDS: f64 = 1e9;

/// What is the same in all requests.
pub(super) struct Told {
    resource: Resource,
    start_ns: u64,
}

impl Told {
    pub(super) fn of(resource: &[(String, String)], started: f64) -> Self {
        let attributes = resource.iter().map(|(key, value)| text(key, value)).collect();
        Self { resource: Resource { attributes }, start_ns: (started * NANOSECONDS) as u64 }
    }

    pub(super) fn traces(&self, spans: Vec<Finished>) -> Traces {
        let spans = spans.into_iter().map(span).collect();
        let scopes = vec![ScopeSpans { scope: Some(scope()), spans }];
        Traces { resources: vec![ResourceSpans { resource: Some(self.resource.clone()), scopes }] }
    }

    pub(super) fn metrics(&self, families: &[Family]) -> Metrics {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let metrics = families.iter().filter(|family| !family.series.is_empty()).map(|family| self.metric(family, now));
        let scopes = vec![ScopeMetrics { scope: Some(scope()), metrics: metrics.collect() }];
        Metrics { resources: vec![ResourceMetrics { resource: Some(self.resource.clone()), scopes }] }
    }

    fn metric(&self, family: &Family, now: u64) -> Metric {
        let (name, unit) = named(family.name);
        let points = || family.series.iter().filter_map(|series| self.point(series, now)).collect();
        let temporality = Temporality::Cumulative.into();
        let data = match family.kind {
            Kind::Gauge => Data::Gauge(Gauge { points: points() }),
            Kind::Counter => Data::Sum(Sum { points: points(), temporality, only_rises: true }),
            Kind::Histogram => {
                let points = family.series.iter().filter_map(|series| self.histogram_point(series, now)).collect();
                Data::Histogram(Histogram { points, temporality })
            }
        };
        Metric { name, description: family.help.to_owned(), unit: unit.to_owned(), data: Some(data) }
    }

    fn point(&self, series: &Series, now: u64) -> Option<Point> {
        let Value::Number(number) = series.value else { return None };
        let attributes = labels(series);
        Some(Point { start_ns: self.start_ns, time_ns: now, number: Some(number), attributes })
    }

    fn histogram_point(&self, series: &Series, now: u64) -> Option<HistogramPoint> {
        let Value::Distribution(Distribution { bounds, counts, sum }) = &series.value else { return None };
        Some(HistogramPoint {
            start_ns: self.start_ns,
            time_ns: now,
            count: counts.iter().sum(),
            sum: Some(*sum),
            counts: counts.clone(),
            bounds: bounds.to_vec(),
            attributes: labels(series),
        })
    }
}

/// As OpenTelemetry writes names, and the unit: what Prometheus has at the end goes, and is put back by whoever writes
/// for it.
fn named(name: &str) -> (String, &'static str) {
    let (name, unit) = match name.strip_suffix("_total") {
        Some(counted) => (counted, "1"),
        None => name.strip_suffix("_seconds").map_or((name, "1"), |timed| (timed, "s")),
    };
    (name.replace('_', "."), unit)
}

fn scope() -> Scope {
    Scope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

fn span(finished: Finished) -> Span {
    let status = finished.failed().then_some(Status { code: ERROR });
    let flags = SAMPLED | HAS_IS_REMOTE | if finished.remote_parent { IS_REMOTE } else { 0 };
    Span {
        trace_id: finished.trace.to_vec(),
        span_id: finished.id.to_vec(),
        parent_span_id: finished.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: finished.name,
        kind: finished.side as i32,
        start_ns: finished.began,
        end_ns: finished.ended,
        attributes: finished.attributes.into_iter().map(attribute).collect(),
        status,
        flags,
    }
}

fn attribute(Attribute { name, value }: Attribute) -> KeyValue {
    let word = match value {
        Word::Text(text) => AnyWord::Text(text),
        Word::Number(number) => AnyWord::Number(number),
        Word::Truth(truth) => AnyWord::Truth(truth),
    };
    KeyValue { key: name.to_owned(), value: Some(AnyValue { word: Some(word) }) }
}

fn labels(series: &Series) -> Vec<KeyValue> {
    series.labels.iter().map(|(name, value)| text(name, value)).collect()
}

fn text(key: &str, value: &str) -> KeyValue {
    let word = Some(AnyWord::Text(value.to_owned()));
    KeyValue { key: key.to_owned(), value: Some(AnyValue { word }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_opentelemetry_writes_them() {
        assert_eq!(named("oncegate_calls_total"), ("oncegate.calls".to_owned(), "1"));
        assert_eq!(named("oncegate_call_duration_seconds"), ("oncegate.call.duration".to_owned(), "s"));
        assert_eq!(named("oncegate_effects"), ("oncegate.effects".to_owned(), "1"));
    }
}
