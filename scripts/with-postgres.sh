#!/usr/bin/env bash
# Runs a command against a PostgreSQL of its own, which is gone afterwards.
#
#   scripts/with-postgres.sh CMD…    CMD finds the server at $TEST_PG_URL
#   scripts/with-postgres.sh --find  prints the directory of the server programs; false where there are none
#
# The server listens on loopback only, on a port that was free, in a temporary directory. Durability is off: nothing in
# it outlives the command.
set -euo pipefail

START_SECONDS_MAX=60

# Distributions keep the server programs out of PATH; the newest version wins.
find_bin() {
    local found
    for found in "${PG_BIN:-}" $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -Vr) \
        $(ls -d /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin 2>/dev/null | sort -Vr) \
        "$(dirname "$(command -v initdb || true)" 2>/dev/null)"; do
        if [ -n "$found" ] && [ -x "$found/initdb" ] && [ -x "$found/postgres" ]; then
            echo "$found"
            return 0
        fi
    done
    return 1
}

if [ "${1:-}" = --find ]; then
    find_bin
    exit
fi
[ $# -gt 0 ] || { echo "usage: $0 CMD…" >&2; exit 2; }
bin=$(find_bin) || { echo "with-postgres: no PostgreSQL server programs; run scripts/setup.sh test" >&2; exit 1; }

# initdb and postgres refuse to run as root. A program, not a function: $! must be the server's own pid.
as=(env)
if [ "$(id -u)" = 0 ]; then as=(setpriv --reuid postgres --regid postgres --init-groups); fi

work=$(mktemp -d "${TMPDIR:-/tmp}/sendonce-pg.XXXXXX")
server=
stop() {
    local status=$?
    trap - EXIT INT TERM HUP
    if [ -n "$server" ]; then
        # SIGINT is PostgreSQL's fast shutdown: it does not wait for clients.
        kill -INT "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [ "$(id -u)" = 0 ]; then chown postgres "$work"; fi
cd "$work" # the other user may not read the caller's directory
"${as[@]}" "$bin/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$work/initdb.log" 2>&1 ||
    { cat "$work/initdb.log" >&2; exit 1; }

free_port() {
    local port
    for _ in $(seq 50); do
        port=$((20000 + RANDOM % 30000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
    return 1
}

# Between the look and the bind another process may take the port, so a server that does not start is tried again.
for _ in 1 2 3; do
    port=$(free_port)
    "${as[@]}" "$bin/postgres" -D "$work/data" -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
        -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200 >"$work/server.log" 2>&1 &
    server=$!
    for _ in $(seq $((START_SECONDS_MAX * 10))); do
        kill -0 "$server" 2>/dev/null || break
        if "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; then
            cd "$OLDPWD"
            status=0
            TEST_PG_URL="postgres://postgres@127.0.0.1:$port/postgres" "$@" || status=$?
            exit "$status"
        fi
        sleep 0.1
    done
    kill -INT "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
done
cat "$work/server.log" >&2
echo "with-postgres: PostgreSQL did not start" >&2
exit 1
