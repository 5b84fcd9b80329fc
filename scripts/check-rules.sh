#!/usr/bin/env bash
# Checks deploy/prometheus by Prometheus's own program. Where it is not installed, it alone is taken out of Debian's
# package, which is not installed: that would start a server and bring a hundred megabytes with it. Elsewhere the
# rules are only read by the tests, and this says so.
set -euo pipefail
cd "$(dirname "$0")/.."

TOOLS=$PWD/target/setup/prometheus

promtool=$(command -v promtool || true)
if [ -z "$promtool" ] && [ -x "$TOOLS/promtool" ]; then
    promtool=$TOOLS/promtool
fi
if [ -z "$promtool" ] && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
    mkdir -p "$TOOLS"
    if (cd "$TOOLS" && apt-get download -qq prometheus >/dev/null 2>&1); then
        dpkg-deb --fsys-tarfile "$TOOLS"/prometheus_*.deb | tar -x -O ./usr/bin/promtool >"$TOOLS/promtool.new"
        chmod +x "$TOOLS/promtool.new"
        mv "$TOOLS/promtool.new" "$TOOLS/promtool"
        rm -f "$TOOLS"/prometheus_*.deb
        promtool=$TOOLS/promtool
    fi
fi
if [ -z "$promtool" ]; then
    echo "promtool is not here and could not be fetched: the rules were not checked by it"
    exit 0
fi
"$promtool" check rules deploy/prometheus/*.rules.yml
