#!/bin/sh
# Serves the demo: the first start makes somebody who can sign in for each role, and a key for the API. What was
# made stands in data/demo-access.txt, which only its owner can read.
#
#   scripts/demo.sh PROGRAM
set -eu
cd "$(dirname "$0")/.."
program=$1
access=data/demo-access.txt
url=http://127.0.0.1:3000

umask 077
mkdir -p data
if ! [ -s "$access" ]; then
    {
        echo "The demo, at $url"
        echo
        echo "Sign in with:"
        for role in support compliance oncall admin; do
            password=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')
            if printf '%s\n' "$password" | "$program" user add --email "$role@example.com" --role "$role" \
                --password-stdin >/dev/null; then
                printf '  %-24s %s\n' "$role@example.com" "$password"
            else
                printf '  %-24s %s\n' "$role@example.com" "(made earlier: sendonce user passwd --email $role@example.com)"
            fi
        done
        echo
        echo "Call the API with:"
        name=demo-$(od -An -N8 -tu1 /dev/urandom | tr -d ' \n' | tr 0-9 a-j)
        key=$("$program" client add --name "$name" --scope admit --scope status --scope cancel --scope freeze)
        echo "  $key"
    } >"$access.new"
    mv "$access.new" "$access"
fi
cat "$access"
key=$(sed -n 's/^  \(so_.*\)$/\1/p' "$access")
cat <<TEXT

A first event:
  curl -s $url/v1/events -H 'Authorization: Bearer $key' -H 'Content-Type: application/json' \\
    -d "{\"event_id\":\"ev-\$(date +%s)\",\"idempotency_key\":\"key-\$(date +%s)\",\"destination_ref\":\"dest-1\",\"reset_ref\":\"reset-1\",\"seller_id\":\"seller_1042\",\"expires_at\":\"\$(date -u -d '+30 min' +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -v+30M +%Y-%m-%dT%H:%M:%SZ)\"}"

Kept in $access. Ctrl-C ends it.

TEXT
# The control API of the built-in provider: the README shows how to make it time out.
export SENDONCE_PROVIDERS__DEMO__LISTEN="${SENDONCE_PROVIDERS__DEMO__LISTEN:-127.0.0.1:4010}"
exec "$program" serve
