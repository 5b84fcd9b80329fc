#!/bin/sh
# Makes the machine ready, one line a step. Does nothing, quickly, where all is there already.
#
#   scripts/setup.sh          what building and running needs
#   scripts/setup.sh test     and what the tests need: node, a browser, PostgreSQL's server programs, servers in Python
#
# SENDONCE_WASM=debian takes Debian's compiler for the browser bundle even where rustup could supply the target.
set -eu
cd "$(dirname "$0")/.."

RUSTUP_SECONDS_MAX=300
TARGET=wasm32-unknown-unknown
TOOLCHAIN_FILE=target/setup/wasm-toolchain
OS=$(uname -s)

say() { printf '%-12s %s\n' "$1" "$2"; }
die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

case ${1:-} in
'' | test) ;;
*) die "unknown argument $1; it is nothing, or test" ;;
esac

# --- packages -------------------------------------------------------------------------------------------------------

apt_is_fresh=
# apt_install WHAT-FOR PACKAGE…: false where this is not Debian or we may not install.
apt_install() {
    what=$1
    shift
    have apt-get || return 1
    sudo=
    if [ "$(id -u)" != 0 ]; then
        have sudo || die "$what is missing: as root, apt-get install $*"
        sudo=sudo
    fi
    # The lists are fetched only once something is missing: it is the slowest part.
    if [ -z "$apt_is_fresh" ]; then
        $sudo apt-get update -qq >/dev/null || die "apt-get update failed"
        apt_is_fresh=yes
    fi
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
        die "$what is missing, and this failed: apt-get install $*"
}

# within SECONDS COMMAND…: macOS has no `timeout`.
within() {
    seconds=$1
    shift
    "$@" &
    pid=$!
    (
        sleep "$seconds"
        kill "$pid" 2>/dev/null
    ) >/dev/null 2>&1 &
    watchdog=$!
    status=0
    wait "$pid" || status=$?
    kill "$watchdog" 2>/dev/null || true
    wait "$watchdog" 2>/dev/null || true
    return "$status"
}

# --- what building needs --------------------------------------------------------------------------------------------

rust() {
    have cargo && have rustc || die "Rust is missing: install it by rustup, then run this again"
    say rust "$(rustc --version)"
}

c_compiler() {
    if ! have cc; then
        [ "$OS" != Darwin ] || die "a C compiler is missing: xcode-select --install"
        apt_install "a C compiler" gcc libc6-dev || die "a C compiler (cc) is missing"
    fi
    say "C compiler" "$(cc --version | head -n 1)"
}

# Whether the compiler $1 has the standard library for the browser.
has_wasm_std() {
    lib=$("$1" --print target-libdir --target $TARGET 2>/dev/null) || return 1
    for std in "$lib"/libstd-*.rlib; do
        [ -e "$std" ] && return 0
    done
    return 1
}

wasm_target() {
    mkdir -p target/setup
    if [ "${SENDONCE_WASM:-}" != debian ]; then
        if has_wasm_std rustc; then
            rm -f $TOOLCHAIN_FILE
            say "WASM target" "$TARGET is there"
            return
        fi
        # A download that failed once is not tried again on each run.
        if [ -e $TOOLCHAIN_FILE ] && has_wasm_std /usr/bin/rustc; then
            say "WASM target" "Debian's compiler, its standard library is there ($(/usr/bin/rustc --version))"
            return
        fi
        if have rustup && within $RUSTUP_SECONDS_MAX rustup -q target add $TARGET >/dev/null 2>&1 && has_wasm_std rustc; then
            rm -f $TOOLCHAIN_FILE
            say "WASM target" "$TARGET added by rustup"
            return
        fi
    fi
    have apt-get || die "$TARGET is missing, and rustup could not add it: rustup target add $TARGET"
    debian_wasm_target
}

# Debian ships a recent compiler with the sources of its standard library. Built once for the browser and put where the
# compiler looks, it needs nothing that rustup would have to download.
debian_wasm_target() {
    if ! [ -x /usr/bin/wasm-ld-22 ] || ! [ -x /usr/bin/cargo ] || ! [ -e /usr/share/doc/rust-web-src ]; then
        apt_install "Debian's compiler for $TARGET" rustc-web cargo-web rust-web-src lld-22 ||
            die "$TARGET is missing: rustup target add $TARGET"
    fi
    how="Debian's compiler, its standard library is there"
    if ! has_wasm_std /usr/bin/rustc; then
        build_debian_std
        how="Debian's compiler, its standard library built"
    fi
    # Read by xtask.
    {
        echo "CARGO=/usr/bin/cargo"
        echo "RUSTC=/usr/bin/rustc"
        echo "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=/usr/bin/wasm-ld-22"
    } >$TOOLCHAIN_FILE
    say "WASM target" "$how ($(/usr/bin/rustc --version))"
}

build_debian_std() {
    say "WASM target" "building the standard library once, about a minute"
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/src"
    : >"$work/src/lib.rs"
    cat >"$work/Cargo.toml" <<'TOML'
[package]
name = "empty"
version = "0.0.0"
edition = "2021"

[profile.release]
panic = "abort"

[workspace]
TOML
    (
        cd "$work"
        # An own target directory and no flags of ours: the result is for every project on this machine.
        env -u RUSTUP_TOOLCHAIN -u CARGO -u RUSTFLAGS RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
            CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=/usr/bin/wasm-ld-22 \
            /usr/bin/cargo build -q --release --target $TARGET --target-dir "$work/target" -Zbuild-std=std,panic_abort
    ) || die "building the standard library for $TARGET failed"
    lib=$(/usr/bin/rustc --print target-libdir --target $TARGET)
    $sudo mkdir -p "$lib"
    for rlib in "$work/target/$TARGET/release/deps/"*.rlib; do
        case $rlib in
        */libempty-*) ;;
        *) $sudo cp "$rlib" "$lib/" ;;
        esac
    done
    rm -rf "$work"
    trap - EXIT
    has_wasm_std /usr/bin/rustc || die "the standard library was built but is not in $lib"
}

# --- what the tests need --------------------------------------------------------------------------------------------

node_and_packages() {
    if ! have node || ! have npm; then
        [ "$OS" != Darwin ] || die "node is missing: brew install node"
        apt_install node nodejs npm || die "node and npm are missing"
    fi
    say node "$(node --version)"

    [ -f end2end/package-lock.json ] || return 0
    # npm ci takes seconds even when there is nothing to do, so it runs only for another lock file.
    mark=end2end/node_modules/.sendonce-lock
    if ! cmp -s end2end/package-lock.json "$mark"; then
        PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --prefix end2end --no-audit --no-fund --silent || die "npm ci in end2end failed"
        cp end2end/package-lock.json "$mark"
        say "npm ci" "end2end/node_modules installed"
    else
        say "npm ci" "end2end/node_modules is current"
    fi
}

python() {
    have python3 || apt_install python3 python3 || die "python3 is missing: the independent verifier of evidence is written in it"
    say python3 "$(python3 --version)"
}

browser() {
    if found=$(scripts/find-browser.sh); then
        say browser "$found"
        return
    fi
    if [ "$OS" = Darwin ]; then
        (cd end2end && npx playwright install chromium >/dev/null) || die "no browser: install Google Chrome or Chromium"
    else
        apt_install "a browser" chromium || die "a browser is missing: install chromium, or set CHROMIUM to one"
    fi
    say browser "$(scripts/find-browser.sh || echo "the one of Playwright")"
}

# Servers that other people wrote, for the tests of the providers' protocols. A machine without a package index can do
# without: those tests then say that they were left out.
python_servers() {
    if ! have python3 || ! python3 -c 'import ensurepip' >/dev/null 2>&1; then
        [ "$OS" != Darwin ] || die "Python 3 is missing: brew install python"
        apt_install "Python 3 with venv" python3 python3-venv || die "python3 with its module venv is missing"
    fi
    mark=target/setup/python/.sendonce-packages
    if cmp -s scripts/python-tests.txt "$mark"; then
        say "test servers" "target/setup/python is current"
        return
    fi
    rm -rf target/setup/python
    mkdir -p target/setup
    if python3 -m venv target/setup/python &&
        target/setup/python/bin/pip install -q --disable-pip-version-check --no-compile -r scripts/python-tests.txt >/dev/null 2>&1; then
        cp scripts/python-tests.txt "$mark"
        say "test servers" "target/setup/python installed"
    else
        rm -rf target/setup/python
        say "test servers" "could not be installed; the tests that need them will say so"
    fi
}

postgres() {
    if ! found=$(scripts/with-postgres.sh --find); then
        [ "$OS" != Darwin ] || die "PostgreSQL is missing: brew install postgresql@17"
        apt_install PostgreSQL postgresql || die "PostgreSQL's server programs (initdb, postgres) are missing"
        found=$(scripts/with-postgres.sh --find) || die "PostgreSQL was installed, but there is no initdb"
    fi
    say PostgreSQL "$found"
    if ! [ -x /usr/sbin/pgbouncer ] && ! have pgbouncer; then
        [ "$OS" != Darwin ] || die "pgbouncer is missing: brew install pgbouncer"
        apt_install "a pooler" pgbouncer || die "pgbouncer is missing"
    fi
}

# --------------------------------------------------------------------------------------------------------------------

rust
c_compiler
wasm_target
if [ "${1:-}" = test ]; then
    node_and_packages
    python
    browser
    postgres
    python_servers
fi
