//! Links libFuzzer into the program that it drives, where `cargo xtask fuzz` says that it lies.

fn main() {
    println!("cargo::rerun-if-env-changed=ONCEGATE_LIBFUZZER");
    if let Ok(folder) = std::env::var("ONCEGATE_LIBFUZZER") {
        println!("cargo::rustc-link-search=native={folder}");
        println!("cargo::rustc-link-lib=static=fuzzer");
        println!("cargo::rustc-link-lib=stdc++");
    }
}
