//! Components that are hostile to whoever compiles them.

use oncegate_tests::harness::Run;

use super::*;

/// Functions of the module that takes long, and additions in each.
const FUNCTIONS: usize = 1_000;
const ADDITIONS: usize = 1_500;

/// A number as WebAssembly writes it.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn section(id: u8, body: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(body.len()), body].concat()
}

/// A core module that is never run and takes many seconds to compile.
fn bomb() -> Vec<u8> {
    // No locals; local.get 0, then many times: local.get 0, i32.add, i32.const 3, i32.mul; end.
    let code = [&[0, 0x20, 0][..], &[0x20, 0, 0x6a, 0x41, 3, 0x6c].repeat(ADDITIONS), &[0x0b]].concat();
    let function = [leb(code.len()), code].concat();
    let types = section(1, &[1, 0x60, 1, 0x7f, 1, 0x7f]);
    let functions = section(3, &[leb(FUNCTIONS), vec![0; FUNCTIONS]].concat());
    let codes = section(10, &[leb(FUNCTIONS), function.repeat(FUNCTIONS)].concat());
    [b"\0asm\x01\0\0\0".to_vec(), types, functions, codes].concat()
}

#[test]
fn a_component_that_takes_too_long_to_compile_is_refused_by_that_name() {
    let harness = puppet("compile-time = \"1s\"\n");
    let file = harness.folder().join("bomb.wasm");
    let component = fs::read(harness.component()).unwrap();
    fs::write(&file, [component, section(1, &bomb())].concat()).unwrap();
    let mut command = harness.command();
    command.args(["--isolation", "process", "call"]).arg(&file).args(["peek", "--args", "{}"]);
    let run = Run::of(&mut command).unwrap();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("compiling it takes more than 1 s (the limit compile-time)"), "{}", run.stderr);
    // It left nothing that could be taken for its code.
    let kept = fs::read_dir(harness.home().join("cache")).unwrap().filter_map(Result::ok);
    assert!(kept.into_iter().all(|entry| entry.file_name() == "key"));
}

#[test]
fn what_was_compiled_behind_the_wall_is_kept_and_taken_again() {
    let harness = puppet("");
    let look = script("R-1", &json!([look()]));
    for _ in 0..2 {
        let mut client = serve(&harness);
        let answer = client.call("peek", &look).unwrap();
        assert_eq!(answer["structuredContent"]["status"], "done", "{answer:#}");
    }
    let kept = fs::read_dir(harness.home().join("cache")).unwrap().filter_map(Result::ok);
    let is_code = |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "cwasm");
    assert_eq!(kept.filter(|entry| is_code(&entry.path())).count(), 1);
}
