#!/usr/bin/env bash
# Backs the ledger up into a new folder, while it is served.
#
#   scripts/backup.sh FOLDER [--config FILE]
#
# DATABASE_URL as for the server. SENDONCE names the binary where it is not in PATH. The folder then holds the database and
# `lost-from`, the instant at which the backup was begun: what was committed later is not in it. The keys are not in it
# either: keep a copy of sendonce.keys from the data folder in another place; without it a restored database cannot be used.
set -euo pipefail

usage() { echo "usage: $0 FOLDER [--config FILE]" >&2; exit 2; }
[ $# -ge 1 ] || usage
folder=$1; shift
sendonce=${SENDONCE:-sendonce}
umask 077

[ ! -e "$folder" ] || { echo "backup: $folder exists already; name a new folder" >&2; exit 2; }
part=$folder.part
rm -rf "$part"
mkdir -p "$part"
trap 'rm -rf "$part"' EXIT

date -u +%Y-%m-%dT%H:%M:%SZ >"$part/lost-from"
case ${DATABASE_URL:-} in
    postgres://* | postgresql://*)
        # A name of ours that libpq does not know.
        url=$(printf '%s' "$DATABASE_URL" | sed -E 's/([?&])statement-cache-capacity=[0-9]+&?/\1/; s/[?&]$//')
        pg_dump --format=custom --no-owner --no-privileges --dbname="$url" --file="$part/sendonce.dump"
        ;;
    *)
        "$sendonce" backup --to "$part/sendonce.db" "$@" >/dev/null
        ;;
esac
sync "$part"/* 2>/dev/null || sync
mv "$part" "$folder"
echo "backed up to $folder; lost from $(cat "$folder/lost-from") if it is restored"
