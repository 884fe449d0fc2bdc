//! A component's bytes, before anything of it is compiled: described whole, or refused.

use oncegate_sandbox::describe::Description;
use oncegate_sandbox::policy::Policy;

pub(crate) fn run(data: &[u8]) {
    match Description::read(data) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(description) => {
            let again = Description::read(data).expect("read twice, it is two components");
            assert_eq!(again.digest, description.digest);
            assert_eq!(again.contract, description.contract);
            assert!(!description.tools.is_empty());
            let text = Policy::minimal(&description);
            assert_eq!(Policy::parse("p.toml", &text).as_ref(), Ok(&Policy::default()), "what is commented out grants");
            let on: String =
                text.lines().map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line))).collect();
            assert!(Policy::parse("p.toml", &on).is_ok(), "{on}");
        }
    }
}
