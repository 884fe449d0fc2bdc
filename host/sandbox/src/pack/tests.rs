//! What comes out of `pack` loads, and a component is packed once.

use super::*;
use crate::describe::dummy::component;

const WIT: &str = "package acme:orders@0.1.0;
interface tools {
    /// Reads an order.
    read-order: func(order-id: string) -> result<string, string>;
}
world orders { include oncegate:effect/reader@0.1.0; export tools; }
";

const CONTRACT: &str = r#"
[component]
name = "orders"
effect = "none"
[endpoint.shop]
url = "https://shop.example"
[tool.read-order]
operations = ["get-order"]
[operation.get-order]
effect = "none"
request = "GET shop:/orders/{id}"
fields = [ { name = "id", at = "path:id", from = "argument:/order_id" } ]
"#;

#[test]
fn a_packed_component_loads_and_is_packed_once() {
    let packed = pack(&component(WIT), CONTRACT, WIT).unwrap_or_else(|e| panic!("{e}"));
    let description = Description::read(&packed).unwrap();
    assert_eq!(description.name, "orders");
    assert_eq!(description.wit.as_deref(), Some(WIT));
    assert_eq!(description.tools[0].description.as_deref(), Some("Reads an order."));
    assert!(matches!(pack(&packed, CONTRACT, WIT), Err(LoadError::SectionTwice { .. })));
}

#[test]
fn what_would_not_load_is_not_packed() {
    let bare = component(WIT);
    assert!(pack(&bare, "[component]\n", WIT).is_err());
    let other = WIT.replace("order-id", "id");
    assert!(matches!(pack(&bare, CONTRACT, &other), Err(LoadError::WitDiffers { .. })));
    let long = "#".repeat(SECTION_BYTES_MAX + 1);
    assert!(matches!(pack(&bare, &long, WIT), Err(LoadError::SectionTooLarge { .. })));
}

#[test]
fn a_directory_becomes_one_text_with_docs() {
    let dir = tempfile::tempdir().unwrap();
    let (types, world) = WIT.split_once("world orders").unwrap();
    std::fs::write(dir.path().join("tools.wit"), types).unwrap();
    std::fs::write(dir.path().join("world.wit"), format!("package acme:orders@0.1.0;\nworld orders{world}")).unwrap();
    let text = wit_text(dir.path()).unwrap_or_else(|e| panic!("{e}"));
    assert!(text.contains("Reads an order."), "{text}");
    assert!(pack(&component(WIT), CONTRACT, &text).is_ok(), "{text}");

    let deps = dir.path().join("deps/oncegate-effect");
    std::fs::create_dir_all(&deps).unwrap();
    for (file, text) in BUILT_IN_WIT {
        std::fs::write(deps.join(file), text).unwrap();
    }
    let text = wit_text(dir.path()).unwrap_or_else(|e| panic!("{e}"));
    assert!(pack(&component(WIT), CONTRACT, &text).is_ok(), "{text}");
    assert!(wit_text(&dir.path().join("none")).is_err());
}
