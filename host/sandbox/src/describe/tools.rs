//! The functions of a component that an agent can call, and that its WIT text tells the truth.

use oncegate_contract::{Contract, EffectClass};
use serde_json::Value;
use wit_parser::{Function, FunctionKind, Resolve, WorldId, WorldItem};

use super::wit_text::WitText;
use super::wit_type::{Reader, WitKind, WitType, docs};
use super::{LoadError, lines};
use crate::schema;

/// One tool: an exported function, its types and what its contract lets it ask for.
#[derive(Debug, Clone)]
pub struct ToolDescription {
    /// The function's name.
    pub name: String,
    /// The exported instance it is in, such as `acme:refunds/tools@0.1.0`; none: the world itself.
    pub interface: Option<String>,
    /// The `///` text; hostile until a policy trusts the component.
    pub description: Option<String>,
    /// Parameters by their WIT names.
    pub params: Vec<(String, WitType)>,
    /// Whether the only parameter is a record whose fields are the properties.
    pub spread: bool,
    /// What the function returns, `result<…>` included.
    pub result: Option<WitType>,
    /// JSON Schema 2020-12 of the arguments.
    pub input_schema: Value,
    /// JSON Schema of `result` in the answer when the tool succeeds: of the `ok` of a `result<…>`,
    /// else of what the function returns.
    pub output_schema: Value,
    /// JSON Schema of `result.error` in the answer when the function can return `err`.
    pub error_schema: Option<Value>,
    /// Operations that the contract lets this tool ask for.
    pub operations: Vec<String>,
    /// Effects that one call may have; 0 for a tool that cannot act.
    pub effects: u32,
}

impl ToolDescription {
    /// Whether any of its operations can cause an effect; a tool that cannot is read-only.
    #[must_use]
    pub const fn acts(&self) -> bool {
        self.effects > 0
    }

    /// The function as WIT, without docs and type names: equal texts are equal signatures.
    #[must_use]
    pub fn signature(&self) -> String {
        signature(&self.params, self.result.as_ref())
    }

    fn new(found: &Exported<'_>, resolve: &Resolve) -> Result<Self, LoadError> {
        let function = found.function;
        let not_a_tool = |message| LoadError::NotATool { tool: function.name.clone(), message };
        if function.kind != FunctionKind::Freestanding {
            return Err(not_a_tool("it is async or belongs to a resource; export a plain function".into()));
        }
        let mut reader = Reader::new(resolve);
        let mut params = Vec::new();
        for param in &function.params {
            let ty = reader.read(&param.ty).map_err(not_a_tool)?;
            params.push((param.name.clone(), ty));
        }
        let result = function.result.map(|ty| reader.read(&ty));
        let result = result.transpose().map_err(not_a_tool)?;
        Ok(Self::of(function.name.clone(), found.interface.clone(), docs(&function.docs), (params, result)))
    }

    /// A function with this signature, of which no contract has said anything yet.
    pub(super) fn of(
        name: String,
        interface: Option<String>,
        description: Option<String>,
        (params, result): (Vec<(String, WitType)>, Option<WitType>),
    ) -> Self {
        let spread = matches!(&params[..], [(_, ty)] if matches!(ty.kind, WitKind::Record(_)));
        Self {
            name,
            interface,
            description,
            input_schema: schema::of_arguments(&params),
            output_schema: schema::of_success(result.as_ref()),
            error_schema: schema::of_error(result.as_ref()),
            params,
            spread,
            result,
            operations: Vec::new(),
            effects: 0,
        }
    }
}

fn signature(params: &[(String, WitType)], result: Option<&WitType>) -> String {
    let params: Vec<_> = params.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
    let result = result.map_or_else(String::new, |ty| format!(" -> {ty}"));
    format!("func({}){result}", params.join(", "))
}

struct Exported<'a> {
    interface: Option<String>,
    function: &'a Function,
}

/// The tools, from the WIT text where there is one and from the binary where not.
///
/// Runtimes export more than their world says; functions that the text does not have are no tools.
pub(super) fn read(binary: (&Resolve, WorldId), text: Option<&WitText>) -> Result<Vec<ToolDescription>, LoadError> {
    let (resolve, world) = binary;
    let found = exported(resolve, world);
    let tools = match text {
        None => describe(&found, resolve)?,
        Some(text) => {
            let told = exported(&text.resolve, text.world);
            let tools = describe(&told, &text.resolve)?;
            for tool in &tools {
                compare(tool, &found, resolve)?;
            }
            tools
        }
    };
    for (index, tool) in tools.iter().enumerate() {
        if tools[..index].iter().any(|other| other.name == tool.name) {
            return Err(LoadError::ToolTwice { tool: tool.name.clone() });
        }
    }
    if tools.is_empty() {
        return Err(LoadError::NoTools);
    }
    Ok(tools)
}

fn describe(found: &[Exported<'_>], resolve: &Resolve) -> Result<Vec<ToolDescription>, LoadError> {
    found.iter().map(|found| ToolDescription::new(found, resolve)).collect()
}

fn exported(resolve: &Resolve, world: WorldId) -> Vec<Exported<'_>> {
    let mut found = Vec::new();
    for (key, item) in &resolve.worlds[world].exports {
        match item {
            WorldItem::Function(function) => found.push(Exported { interface: None, function }),
            WorldItem::Interface { id, .. } => {
                let name = resolve.name_world_key(key);
                if !name.starts_with("wasi:") {
                    let functions = resolve.interfaces[*id].functions.values();
                    found.extend(functions.map(|function| Exported { interface: Some(name.clone()), function }));
                }
            }
            WorldItem::Type { .. } => {}
        }
    }
    found
}

/// The text's tool must be in the binary, under the same name, with the same types.
fn compare(told: &ToolDescription, found: &[Exported<'_>], resolve: &Resolve) -> Result<(), LoadError> {
    let differs = |message| Err(LoadError::WitDiffers { message });
    let same =
        |candidate: &&Exported<'_>| candidate.function.name == told.name && candidate.interface == told.interface;
    let place = |interface: &Option<String>| match interface {
        Some(interface) => format!("in `{interface}`"),
        None => "in the world".into(),
    };
    let Some(candidate) = found.iter().find(same) else {
        let names: Vec<_> = found.iter().map(|f| format!("  `{}` {}", f.function.name, place(&f.interface))).collect();
        return differs(format!(
            "the binary does not export `{}` {}; it exports\n{}",
            told.name,
            place(&told.interface),
            lines(&names)
        ));
    };
    let real = ToolDescription::new(candidate, resolve)?;
    if real.signature() != told.signature() {
        return differs(format!(
            "`{}` is, in the text,\n  {}\nand in the binary\n  {}",
            told.name,
            told.signature(),
            real.signature()
        ));
    }
    Ok(())
}

/// Gives each tool what the contract declares for it.
pub(super) fn bind(tools: &mut [ToolDescription], contract: &Contract) {
    for tool in tools {
        let Some(declared) = contract.tools.get(&tool.name) else {
            continue;
        };
        let acts = declared
            .operations
            .iter()
            .any(|name| contract.operations.get(name).is_some_and(|operation| operation.effect != EffectClass::None));
        tool.operations.clone_from(&declared.operations);
        tool.effects = if acts { declared.effects } else { 0 };
    }
}
