//! Where to send, and as whom: `--otlp`, and the variables of the environment that OpenTelemetry's specification names.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::exit::usage;

/// The specification's default.
const TIMEOUT_MS: u64 = 10_000;
const TRACES_EVERY_MS: u64 = 5_000;
const METRICS_EVERY_MS: u64 = 60_000;
/// No pause is shorter: figures are read all at once.
const EVERY_MS_MIN: u64 = 50;
/// Attributes of the resource, and bytes of each: they go along with each request.
const ATTRIBUTES_MAX: usize = 64;
const ATTRIBUTE_BYTES_MAX: usize = 256;
const SERVICE: &str = "oncegate";

/// See the module.
pub(in crate::telemetry) struct Config {
    pub(super) traces: Option<Url>,
    pub(super) metrics: Option<Url>,
    /// Marked as secrets.
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) traces_every: Duration,
    pub(super) metrics_every: Duration,
    /// What is said of this process in each request.
    pub(super) resource: Vec<(String, String)>,
}

impl Config {
    /// None where nobody asked.
    ///
    /// # Errors
    /// Something is asked for that is not done here, or cannot be read.
    pub(in crate::telemetry) fn read(
        flag: Option<&str>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Self>> {
        if environment("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let place = |signal| place(signal, flag, &environment);
        let (traces, metrics) = (place(Signal::Traces)?, place(Signal::Metrics)?);
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        refuse_what_is_not_done(&environment)?;
        let milliseconds = |name: &str, default| milliseconds(name, default, &environment);
        Ok(Some(Self {
            traces,
            metrics,
            headers: headers(environment("OTEL_EXPORTER_OTLP_HEADERS").as_deref().unwrap_or_default())?,
            timeout: milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT_MS)?,
            traces_every: milliseconds("OTEL_BSP_SCHEDULE_DELAY", TRACES_EVERY_MS)?,
            metrics_every: milliseconds("OTEL_METRIC_EXPORT_INTERVAL", METRICS_EVERY_MS)?,
            resource: resource(&environment)?,
        }))
    }

    pub(in crate::telemetry) fn sends_traces(&self) -> bool {
        self.traces.is_some()
    }
}

#[derive(Clone, Copy)]
enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    fn word(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Metrics => "v1/metrics",
        }
    }
}

fn place(
    signal: Signal,
    flag: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Url>> {
    if environment(&format!("OTEL_{}_EXPORTER", signal.word())).is_some_and(|value| value == "none") {
        return Ok(None);
    }
    let own = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.word());
    if let Some(text) = environment(&own).filter(|_| flag.is_none()) {
        return Ok(Some(url(&own, &text)?));
    }
    let base = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let (name, text) = match (flag, environment(base)) {
        (Some(flag), _) => ("--otlp", flag.to_owned()),
        (None, Some(text)) => (base, text),
        (None, None) => return Ok(None),
    };
    let mut url = url(name, &text)?;
    let path = format!("{}/{}", url.path().trim_end_matches('/'), signal.path());
    url.set_path(&path);
    Ok(Some(url))
}

/// What is wrong is said without the text: it may hold a password.
fn url(name: &str, text: &str) -> anyhow::Result<Url> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| usage(format!("{name}: this is no http or https URL; use one such as http://127.0.0.1:4318")))
}

fn refuse_what_is_not_done(environment: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    for name in ["", "_TRACES", "_METRICS"] {
        let name = format!("OTEL_EXPORTER_OTLP{name}_PROTOCOL");
        if let Some(protocol) = environment(&name).filter(|protocol| protocol != "http/protobuf") {
            return Err(usage(format!(
                "{name}={protocol}: only http/protobuf is spoken; a collector takes it at port 4318"
            )));
        }
    }
    for name in ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"] {
        let name = format!("OTEL_EXPORTER_OTLP_{name}");
        if environment(&name).is_some() {
            return Err(usage(format!("{name} is not read; the system's certificates count")));
        }
    }
    Ok(())
}

fn milliseconds(name: &str, default: u64, environment: impl Fn(&str) -> Option<String>) -> anyhow::Result<Duration> {
    let Some(text) = environment(name) else { return Ok(Duration::from_millis(default)) };
    let read: u64 = text.parse().with_context(|| format!("{name}: this is no number of milliseconds"))?;
    Ok(Duration::from_millis(read.max(EVERY_MS_MIN)))
}

/// `name=value`, separated by commas; values are percent-encoded.
fn headers(text: &str) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs("OTEL_EXPORTER_OTLP_HEADERS", text)? {
        // Not which: a part of a secret with a comma in it would look like a name.
        let wrong = "OTEL_EXPORTER_OTLP_HEADERS: one of them is no header";
        let name = HeaderName::from_bytes(name.as_bytes()).context(wrong)?;
        let mut value = HeaderValue::from_str(&value).context(wrong)?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

fn resource(environment: impl Fn(&str) -> Option<String>) -> anyhow::Result<Vec<(String, String)>> {
    let name = "OTEL_RESOURCE_ATTRIBUTES";
    let mut all = vec![
        ("service.name".to_owned(), SERVICE.to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id".to_owned(), format!("{:032x}", rand::random::<u128>())),
        ("telemetry.sdk.language".to_owned(), "rust".to_owned()),
        ("telemetry.sdk.name".to_owned(), SERVICE.to_owned()),
        ("telemetry.sdk.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let service = environment("OTEL_SERVICE_NAME").map(|service| ("service.name".to_owned(), service));
    let given = pairs(name, &environment(name).unwrap_or_default())?;
    for (key, value) in given.into_iter().chain(service) {
        let fits = key.len() <= ATTRIBUTE_BYTES_MAX && value.len() <= ATTRIBUTE_BYTES_MAX;
        ensure!(fits && all.len() < ATTRIBUTES_MAX, "{name}: there are too many, or one is too long");
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => all.push((key, value)),
        }
    }
    Ok(all)
}

fn pairs(name: &str, text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pairs = parts.map(|part| {
        let decoded =
            |text: &str| percent_encoding::percent_decode_str(text.trim()).decode_utf8().map(|text| text.into_owned());
        match part.split_once('=').map(|(key, value)| (decoded(key), decoded(value))) {
            Some((Ok(key), Ok(value))) if !key.is_empty() => Ok((key, value)),
            _ => bail!("{name}: this is no list of name=value, separated by commas"),
        }
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flag: Option<&str>, variables: &[(&str, &str)]) -> anyhow::Result<Option<Config>> {
        let find = |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned());
        Config::read(flag, find)
    }

    fn urls(config: &Config) -> [Option<&str>; 2] {
        [config.traces.as_ref().map(Url::as_str), config.metrics.as_ref().map(Url::as_str)]
    }

    #[test]
    fn it_is_off_unless_asked_for() {
        assert!(read(None, &[]).unwrap().is_none());
        let disabled = [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
        assert!(read(Some("http://c:4318"), &disabled).unwrap().is_none());
    }

    #[test]
    fn each_signal_has_its_place() {
        let config = read(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/")]).unwrap().unwrap();
        assert_eq!(urls(&config), [Some("http://c:4318/base/v1/traces"), Some("http://c:4318/base/v1/metrics")]);
        let own = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/x"), ("OTEL_METRICS_EXPORTER", "none")];
        assert_eq!(urls(&read(None, &own).unwrap().unwrap()), [Some("https://t/x"), None]);
        assert_eq!(urls(&read(Some("http://d"), &own).unwrap().unwrap()), [Some("http://d/v1/traces"), None]);
    }

    #[test]
    fn headers_and_names_are_read_and_secrets_not_shown() {
        let given = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret, x-scope=a"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=first,zone=a%2Cb"),
            ("OTEL_SERVICE_NAME", "payments"),
        ];
        let config = read(Some("http://c"), &given).unwrap().unwrap();
        assert_eq!(config.headers["authorization"], "Bearer s3cret");
        assert!(!format!("{:?}", config.headers).contains("s3cret"));
        let value = |name: &str| config.resource.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!((value("service.name"), value("zone")), (Some("payments"), Some("a,b")));
    }

    #[test]
    fn what_is_wrong_is_said_without_what_may_be_secret() {
        type Asked<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)]);
        let wrong: [Asked<'_>; 6] = [
            (Some("ftp://user:s3cret@c"), &[]),
            (Some("s3cret"), &[]),
            (Some("http://c"), &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]),
            (Some("http://c"), &[("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")]),
            (Some("http://c"), &[("OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cret")]),
            (Some("http://c"), &[("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")]),
        ];
        for (flag, variables) in wrong {
            let Err(error) = read(flag, variables) else { panic!("{variables:?}") };
            assert!(!format!("{error:#}").contains("s3cret"), "{error:#}");
        }
    }
}
