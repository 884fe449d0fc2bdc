//! Figures as Prometheus reads them: its text format, version 0.0.4.

use std::fmt::Write;

use oncegate_sandbox::meter::family::{Distribution, Family, Kind, Series, Value};

/// What the format is called.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All of them.
pub(super) fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        // Writing to a text does not fail.
        let _ = writeln!(text, "# HELP {} {}", family.name, escaped(family.help));
        let _ = writeln!(text, "# TYPE {} {}", family.name, word(family.kind));
        for series in &family.series {
            write_series(&mut text, family.name, series);
        }
    }
    text
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

fn write_series(text: &mut String, name: &str, series: &Series) {
    match &series.value {
        Value::Number(number) => line(text, name, &series.labels, None, *number),
        Value::Distribution(distribution) => write_distribution(text, name, series, distribution),
    }
}

/// Each part counts all values below its end.
fn write_distribution(text: &mut String, name: &str, series: &Series, distribution: &Distribution) {
    let Distribution { bounds, counts, sum } = distribution;
    let (bucket, mut below) = (format!("{name}_bucket"), 0);
    let ends = bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (end, count) in ends.zip(counts) {
        below += count;
        line(text, &bucket, &series.labels, Some(&end), below as f64);
    }
    line(text, &format!("{name}_sum"), &series.labels, None, *sum);
    line(text, &format!("{name}_count"), &series.labels, None, below as f64);
}

fn line(text: &mut String, name: &str, labels: &[(&'static str, String)], end: Option<&str>, number: f64) {
    let labels = labels.iter().map(|(name, value)| (*name, value.as_str())).chain(end.map(|end| ("le", end)));
    let labels: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(text, "{name}{labels} {number}");
}

/// Names are declared by contracts, which others write.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_distributions_are_written() {
        let number = Series::of(&[("tool", "a\"b\\c\nd")], Value::Number(2.5));
        let distribution = Distribution { bounds: &[0.1, 1.0], counts: vec![1, 2, 3], sum: 7.25 };
        let families = [
            Family::new("x_total", "Of x.", Kind::Counter, vec![number]),
            Family::new(
                "y_seconds",
                "Of y.",
                Kind::Histogram,
                vec![Series::of(&[], Value::Distribution(distribution))],
            ),
        ];
        let expected = "# HELP x_total Of x.\n# TYPE x_total counter\nx_total{tool=\"a\\\"b\\\\c\\nd\"} 2.5\n\
                        # HELP y_seconds Of y.\n# TYPE y_seconds histogram\ny_seconds_bucket{le=\"0.1\"} 1\n\
                        y_seconds_bucket{le=\"1\"} 3\ny_seconds_bucket{le=\"+Inf\"} 6\ny_seconds_sum 7.25\ny_seconds_count 6\n";
        assert_eq!(text(&families), expected);
    }
}
