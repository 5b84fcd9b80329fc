#!/usr/bin/env bash
# Everything that has to hold, in the order in which it is cheapest to learn that it does not. Stops at the first part
# that fails and says which; says at the end how long each part took. `make test` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

times=()
part() {
    local name=$1 started=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    if ! "$@"; then
        printf '\n== failed: %s, after %s s\n' "$name" $((SECONDS - started)) >&2
        exit 1
    fi
    times+=("$(printf '%5s s  %s' $((SECONDS - started)) "$name")")
}

# Not `--workspace`: together with xtask's, the features of shared dependencies would differ from those of a plain
# `cargo build` or `cargo test`, and half of them would be built twice.
lint_server() {
    cargo clippy -p app -p server --all-targets -- -D warnings &&
        cargo clippy -p xtask --all-targets -- -D warnings
}

lint_bundle() {
    # Debian's compiler for the browser comes without clippy; the same code is then linted for this machine.
    local target=(--target wasm32-unknown-unknown)
    [ ! -e target/setup/wasm-toolchain ] || target=()
    cargo clippy -p app --lib --no-default-features --features hydrate ${target[@]+"${target[@]}"} -- -D warnings
}

run_tests() {
    # The store's tests run on both engines; the server programs were installed by the set-up.
    scripts/with-postgres.sh cargo test -p app -p server &&
        cargo test -q -p xtask
}

case ${1:-all} in
lint)
    part "clippy, server" lint_server
    part "clippy, bundle" lint_bundle
    ;;
all)
    part "set-up" scripts/setup.sh test
    part "format" cargo fmt --all --check
    part "clippy, server" lint_server
    part "clippy, bundle" lint_bundle
    part "site" cargo xtask site
    part "rules" scripts/check-rules.sh
    part "build" cargo build --bin sendonce
    part "tests" run_tests
    part "browser tests" npm test --prefix end2end --silent
    ;;
*)
    echo "usage: $0 [lint]" >&2
    exit 2
    ;;
esac

printf '\n== all passed\n'
printf '%s\n' "${times[@]}"
