//! A description as it is kept on disk: what was read from a component's bytes once, for whoever has the same bytes and
//! is the same program.
//!
//! Only a component that has loaded is kept. What cheap and pure functions make of the rest (the contract of its text,
//! schemas of types, what an import means) is made again, so that it cannot differ from what reading the bytes gives.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use oncegate_contract::Contract;
use serde::{Deserialize, Serialize};

use super::wit_type::WitType;
use super::{CONTRACT_SECTION, Description, ToolDescription, class, imports, no_contract, tools};

/// Changes with what is kept and with what it is read as.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Kept {
    /// The program that read the bytes: another one may read them otherwise, or refuse them.
    program: String,
    size: usize,
    name: String,
    contract: Option<String>,
    wit: Option<String>,
    world: Option<String>,
    producers: Vec<(String, String)>,
    imports: Vec<String>,
    tools: Vec<KeptTool>,
}

#[derive(Serialize, Deserialize)]
struct KeptTool {
    name: String,
    interface: Option<String>,
    description: Option<String>,
    params: Vec<(String, WitType)>,
    result: Option<WitType>,
}

impl Description {
    /// As it is kept; none where this program cannot be told from another one.
    pub(crate) fn to_kept(&self) -> Option<Vec<u8>> {
        let tool = |tool: &ToolDescription| KeptTool {
            name: tool.name.clone(),
            interface: tool.interface.clone(),
            description: tool.description.clone(),
            params: tool.params.clone(),
            result: tool.result.clone(),
        };
        let kept = Kept {
            program: program()?.to_owned(),
            size: self.size,
            name: self.name.clone(),
            contract: self.has_contract.then(|| self.contract.text.clone()),
            wit: self.wit.clone(),
            world: self.world.clone(),
            producers: self.producers.clone(),
            imports: self.imports.iter().map(|import| import.name.clone()).collect(),
            tools: self.tools.iter().map(tool).collect(),
        };
        serde_json::to_vec(&kept).ok()
    }

    /// What was kept of the component with this digest; none if another program kept it.
    pub(crate) fn of_kept(digest: [u8; 32], bytes: &[u8]) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(bytes).ok()?;
        if kept.program != program()? {
            return None;
        }
        let imports: Vec<_> = kept.imports.into_iter().map(imports::offered).collect::<Option<_>>()?;
        let contract = kept.contract.as_deref().map(|text| Contract::parse(CONTRACT_SECTION, text));
        let contract = contract.transpose().ok()?;
        let class = class(contract.as_ref(), &imports).ok()?;
        let has_contract = contract.is_some();
        let tool = |tool: KeptTool| {
            let signature = (tool.params, tool.result);
            ToolDescription::of(tool.name, tool.interface, tool.description, signature)
        };
        let mut tools: Vec<_> = kept.tools.into_iter().map(tool).collect();
        if let Some(contract) = &contract {
            tools::bind(&mut tools, contract);
        }
        let contract = match contract {
            Some(contract) => contract,
            None => no_contract(Some(&kept.name)).ok()?,
        };
        Some(Self {
            digest,
            size: kept.size,
            name: kept.name,
            contract,
            has_contract,
            wit: kept.wit,
            class,
            imports,
            tools,
            producers: kept.producers,
            world: kept.world,
        })
    }
}

/// This program: its version, and its file, which every build writes anew.
fn program() -> Option<&'static str> {
    static PROGRAM: OnceLock<Option<String>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let file = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe().ok()? };
        let file = std::fs::metadata(file).ok()?;
        let (version, size, seconds) = (env!("CARGO_PKG_VERSION"), file.size(), file.mtime());
        Some(format!("{FORMAT} {version} {size} {seconds}.{:09}", file.mtime_nsec()))
    });
    program.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::{WIT_SECTION, dummy, tests};

    const TYPES: &str = "package acme:types@0.1.0;
interface tools {
    /// All there is.
    record all {
        /// Some.
        a: list<option<result<tuple<u8, s64, f32, char>, string>>>, b: list<u8>, c: case, d: mode, e: flag,
    }
    variant case { /// None.
        none, some(u64) }
    enum mode { fast, slow }
    flags flag { read, write }
    /// What it does.
    does: func(all: all, more: bool) -> result<_, string>;
    nothing: func();
}
world w { import oncegate:effect/context@0.1.0; export tools; export itself: func(x: u32) -> u32; }
";

    #[test]
    fn what_is_kept_is_what_was_read() {
        let types = dummy::component(TYPES);
        let told = dummy::with(types.clone(), &[(WIT_SECTION, TYPES.as_bytes())]);
        for bytes in [tests::refunds(), types, told] {
            let read = Description::read(&bytes).unwrap();
            let kept = Description::of_kept(read.digest, &read.to_kept().unwrap()).unwrap();
            assert_eq!(format!("{read:#?}"), format!("{kept:#?}"));
        }
    }

    #[test]
    fn what_another_program_kept_is_not_taken() {
        let read = Description::read(&tests::refunds()).unwrap();
        let mut kept: serde_json::Value = serde_json::from_slice(&read.to_kept().unwrap()).unwrap();
        kept["program"] = format!("{}x", kept["program"].as_str().unwrap()).into();
        assert!(Description::of_kept(read.digest, kept.to_string().as_bytes()).is_none());
        assert!(Description::of_kept(read.digest, b"").is_none());
    }
}
