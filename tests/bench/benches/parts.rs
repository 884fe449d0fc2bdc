//! Single steps of a call, each alone: `cargo bench --workspace --bench parts`. What the whole costs is in `table.md`.
#![allow(missing_docs, reason = "criterion's macros make functions without any")]
#![allow(clippy::unwrap_used, reason = "a measurement stops at the first surprise")]

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oncegate_bench::part::world::component;
use oncegate_contract::{Answer, Contract, Operation, Owner, Resolved, Sources, Value};
use oncegate_sandbox::convert;
use oncegate_sandbox::describe::Description;
use serde_json::json;

const CONTRACT: &str = include_str!("../../guests/posting/contract.toml");
const OWNER: Owner<'_> = Owner { tenant: "acme", account: "bench", owner: "posting" };

fn operation() -> Operation {
    Contract::parse("contract.toml", CONTRACT).unwrap().operations["create-posting"].clone()
}

fn resolved(operation: &Operation, arguments: &serde_json::Value) -> Resolved {
    let given = [("memo".to_owned(), Value::Text("from a caller".to_owned()))];
    let (context, plan) = (BTreeMap::new(), BTreeMap::new());
    let sources = Sources { context: &context, arguments, lookups: &[], given: &given, plan: &plan };
    oncegate_contract::resolve(operation, &sources).unwrap()
}

fn identity(criterion: &mut Criterion) {
    let (operation, arguments) = (operation(), json!({ "id": "order-1", "amount": 1200, "memo": "from a caller" }));
    let fields = resolved(&operation, &arguments);
    let key = oncegate_contract::effect_key(&operation, &OWNER, &fields, 0).unwrap();
    let downstream = oncegate_contract::downstream_key(&key, 0);
    let mut group = criterion.benchmark_group("identity");
    group.bench_function("resolve", |bench| bench.iter(|| resolved(black_box(&operation), &arguments)));
    group.bench_function("effect key", |bench| {
        bench.iter(|| oncegate_contract::effect_key(&operation, &OWNER, black_box(&fields), 0));
    });
    group.bench_function("recipe", |bench| bench.iter(|| oncegate_contract::recipe(black_box(&operation))));
    group.bench_function("fingerprint", |bench| {
        bench.iter(|| oncegate_contract::fingerprint(black_box(&fields), [7; 16]));
    });
    group.bench_function("render", |bench| {
        let url = "https://api.pay.example";
        bench.iter(|| oncegate_contract::render(&operation, url, black_box(&fields), Some(&downstream)));
    });
    group.finish();
}

fn answers(criterion: &mut Criterion) {
    let operation = operation();
    let mut group = criterion.benchmark_group("classify");
    for bytes in [300, 16 << 10] {
        let body = json!({ "id": "fx_1", "object": "effect", "pad": "x".repeat(bytes) }).to_string().into_bytes();
        let answer = Answer { status: 200, headers: Vec::new(), body, complete: true };
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("{bytes} bytes"), |bench| {
            bench.iter(|| oncegate_contract::classify(&operation, black_box(&answer)));
        });
    }
    group.finish();
}

fn conversion(criterion: &mut Criterion) {
    let bytes = std::fs::read(component("tariff").unwrap()).unwrap();
    let description = Description::read(&bytes).unwrap();
    let tool = description.tool("quote").unwrap();
    let arguments = json!({ "weight": 1700, "zone": "neighbours", "insured": true, "note": "fragile" });
    let values = convert::to_vals(&arguments, tool).unwrap();
    let mut group = criterion.benchmark_group("conversion");
    group.bench_function("JSON to values", |bench| bench.iter(|| convert::to_vals(black_box(&arguments), tool)));
    group.bench_function("values to canonical JSON", |bench| {
        bench.iter(|| convert::canonical_arguments(black_box(&values), tool));
    });
    group.bench_function("describe a component", |bench| bench.iter(|| Description::read(black_box(&bytes))));
    group.finish();
}

criterion_group!(parts, identity, answers, conversion);
criterion_main!(parts);
