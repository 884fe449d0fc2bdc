//! Which traces are kept: `OTEL_TRACES_SAMPLER`, by default those that their callers keep, and all that begin here.

use anyhow::bail;

/// What is kept of traces that begin here, or of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::telemetry) struct Sampler {
    /// The caller's word counts, where there is one.
    by_parent: bool,
    share: f64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { by_parent: true, share: 1.0 }
    }
}

impl Sampler {
    /// Of the environment.
    ///
    /// # Errors
    /// There is no such sampler.
    pub(in crate::telemetry) fn read(environment: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let Some(name) = environment("OTEL_TRACES_SAMPLER") else { return Ok(Self::default()) };
        let (by_parent, root) = name.strip_prefix("parentbased_").map_or((false, name.as_str()), |root| (true, root));
        let share = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => share(environment("OTEL_TRACES_SAMPLER_ARG").as_deref())?,
            _ => bail!(
                "OTEL_TRACES_SAMPLER={name:?}: there is no such sampler; use always_on, always_off, traceidratio, or one of \
                 them behind parentbased_"
            ),
        };
        Ok(Self { by_parent, share })
    }

    /// Whether this trace is kept; `said` is whether its caller keeps it.
    pub(super) fn takes(self, trace: &[u8; 16], said: Option<bool>) -> bool {
        if let Some(said) = said.filter(|_| self.by_parent) {
            return said;
        }
        let [.., a, b, c, d] = *trace;
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.share * (f64::from(u32::MAX) + 1.0)
    }
}

fn share(text: Option<&str>) -> anyhow::Result<f64> {
    match text.unwrap_or("1").parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => bail!("OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, share: &str) -> anyhow::Result<Sampler> {
        Sampler::read(|asked| match asked {
            "OTEL_TRACES_SAMPLER" => Some(name.to_owned()),
            _ => Some(share.to_owned()),
        })
    }

    #[test]
    fn the_callers_word_counts_unless_it_is_said_not_to() {
        let trace = [7; 16];
        assert!(!Sampler::default().takes(&trace, Some(false)) && Sampler::default().takes(&trace, None));
        let all = read("always_on", "").unwrap();
        assert!(all.takes(&trace, Some(false)));
        let none = read("parentbased_always_off", "").unwrap();
        assert!(none.takes(&trace, Some(true)) && !none.takes(&trace, None));
    }

    #[test]
    fn a_share_is_a_share() {
        let half = read("traceidratio", "0.5").unwrap();
        let (mut low, mut high) = ([0; 16], [0; 16]);
        (low[12], high[12]) = (0x7f, 0x80);
        assert!(half.takes(&low, None) && !half.takes(&high, None));
        for (name, share) in [("traceidratio", "2"), ("traceidratio", "x"), ("jaeger_remote", "")] {
            assert!(read(name, share).is_err(), "{name}");
        }
    }
}
