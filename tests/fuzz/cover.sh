#!/bin/sh
# Called by cargo in front of rustc, for the crates of this repository alone: adds the coverage that
# libFuzzer reads, and keeps every check of a debug build. Dependencies stay as they were built.
case " $* " in
*" --crate-name build_script_"* | *" --crate-name ___ "*) exec "$@" ;;
*" --crate-name "*) ;;
*) exec "$@" ;;
esac
exec "$@" -Copt-level=1 -Cdebug-assertions=on -Coverflow-checks=on \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
