"""The attacks of ../PEERS.md against Extism, through its Python host SDK, with a manifest as its documentation shows it.

    python -m venv v && v/bin/pip install extism==1.1.1 extism-sys==1.41.0 wasmtime==50.0.1 && v/bin/python extism_attacks.py
"""

import json
import os
import threading
import time

import extism
import wasmtime

from provider import Provider

os.environ["HOST_SECRET"] = "of-the-host"

WAT = """(module
 (import "extism:host/env" "input_offset" (func $input_offset (result i64)))
 (import "extism:host/env" "length" (func $length (param i64) (result i64)))
 (import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
 (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
 (import "extism:host/env" "http_request" (func $http (param i64 i64) (result i64)))
 (import "extism:host/env" "config_get" (func $config (param i64) (result i64)))
 (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
 (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
 (memory (export "memory") 17)
 (func (export "hello") (result i32) i32.const 0)
 (func (export "spin") (result i32) (loop $l (br $l)) unreachable)
 (func (export "hog") (result i32) (local $n i32)
   (block $end (loop $l
     (br_if $end (i32.eq (memory.grow (i32.const 16)) (i32.const -1)))
     (memory.fill (i32.shl (i32.sub (memory.size) (i32.const 16)) (i32.const 16)) (i32.const 1) (i32.const 1048576))
     (local.set $n (i32.add (local.get $n) (i32.const 1)))
     (br_if $l (i32.lt_u (local.get $n) (i32.const 512)))))
   (call $said (local.get $n)) i32.const 0)
 (func $said (param $n i32) ;; the number as the length of the output
   (call $output_set (call $alloc (i64.extend_i32_u (local.get $n))) (i64.extend_i32_u (local.get $n))))
 (func (export "fetch") (result i32) (local $r i64)
   (local.set $r (call $http (call $input_offset) (i64.const 0)))
   (call $output_set (local.get $r) (call $length (local.get $r))) i32.const 0)
 (func (export "config") (result i32) (local $r i64)
   (local.set $r (call $config (call $input_offset)))
   (call $output_set (local.get $r) (call $length (local.get $r))) i32.const 0)
 (func (export "env") (result i32)
   (drop (call $environ (i32.const 8) (i32.const 12)))
   (call $said (i32.load (i32.const 8))) i32.const 0)
 (func (export "big") (result i32)
   (call $output_set (call $alloc (i64.const 268435456)) (i64.const 268435456)) i32.const 0)
 (func (export "flood") (result i32) (local $n i32)
   (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1048576))
   (loop $l
     (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
     (local.set $n (i32.add (local.get $n) (i32.const 1)))
     (br_if $l (i32.lt_u (local.get $n) (i32.const 64))))
   (call $said (local.get $n)) i32.const 0)
)"""

WASM = bytes(wasmtime.wat2wasm(WAT))


def plugin(**manifest):
    return extism.Plugin({"wasm": [{"data": WASM}], **manifest}, wasi=True)


def tried(what, attack):
    started = time.time()
    try:
        said = attack()
    except Exception as error:  # what a host says is what is asked here
        said = f"{type(error).__name__}: {' | '.join(line.strip() for line in str(error).splitlines() if line.strip())[-160:]}"
    print(f"{what}: {said} ({time.time() - started:.1f} s)", flush=True)


def spins(**manifest):
    """Whether a loop is stopped, and whether another plugin is served beside it."""
    hung, other = plugin(**manifest), plugin()
    ended = []

    def run():
        try:
            hung.call("spin", b"")
        except Exception as error:
            ended.append(str(error).strip().splitlines()[0][:100])

    threading.Thread(target=run, daemon=True).start()
    time.sleep(0.5)
    other.call("hello", b"")
    served = "another plugin is served meanwhile"
    for _ in range(60):
        if ended:
            return f"{served}; it ends with {ended[0]!r}"
        time.sleep(0.1)
    if manifest.get("cancel", True):
        hung.cancel_handle().cancel()
    for _ in range(50):
        if ended:
            return f"{served}; still running after 6 s, ended by its cancel handle with {ended[0]!r}"
        time.sleep(0.1)
    return f"{served}; still running after 6 s and after its cancel handle"


def fetched(provider, path, hosts, secret="s3cret"):
    request = {"url": f"http://localhost:{provider.port}{path}", "method": "GET", "headers": {"X-Secret": secret}}
    body = plugin(allowed_hosts=hosts).call("fetch", json.dumps(request).encode())
    return bytes(body)[:60]


def redirected():
    provider = Provider()
    body = fetched(provider, "/redirect", ["localhost"])
    return f"allowed localhost alone; {provider.asked}; the secret came to {provider.secrets}; the guest has {body}"


def retried():
    """A call that outlives its deadline, and the caller's second try."""
    provider = Provider()
    request = {"url": f"http://localhost:{provider.port}/pay?hang", "method": "POST"}
    for _ in range(2):
        try:
            plugin(allowed_hosts=["localhost"], timeout_ms=1500).call("fetch", json.dumps(request).encode())
        except Exception as error:
            print("   ", str(error).strip().splitlines()[0][:120])
    return f"{len(provider.effects)} effects"


print("extism", extism.extism_version(), "on Python")
tried("loop, no timeout in the manifest", spins)
tried("loop, timeout_ms 1000", lambda: spins(timeout_ms=1000))
tried("512 MiB, no limit in the manifest", lambda: f"{len(plugin().call('hog', b''))} MiB were had")
tried("512 MiB, max_pages 1024", lambda: f"{len(plugin(memory={'max_pages': 1024}).call('hog', b''))} MiB were had")
tried("environment", lambda: f"{len(plugin().call('env', b''))} variables")
tried("secret in config", lambda: bytes(plugin(config={"key": "of-the-config"}).call("config", b"key")))
tried("host that is not allowed", lambda: fetched(Provider(), "/", ["api.example"]))
tried("host that is allowed and loopback", lambda: fetched(Provider(), "/", ["localhost"]))
tried("redirect to another host", redirected)
tried("output of 256 MiB", lambda: f"{len(plugin().call('big', b'')) >> 20} MiB reach the caller")
tried("64 MiB to standard output", lambda: f"{len(plugin().call('flood', b''))} MiB were written")
tried("timeout and a second try", retried)
