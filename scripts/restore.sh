#!/usr/bin/env bash
# Restores a backup of scripts/backup.sh, and completes the restore so that nothing is sent twice.
#
#   scripts/restore.sh FOLDER [--config FILE]
#
# DATABASE_URL as for the server (the embedded database by its URL, or sendonce.db in $SENDONCE_DATA_DIR, or in ./data).
# SENDONCE names the binary where it is not in PATH. End every process first. sendonce.keys must be the one that the
# database was made with. The database that was there is kept beside it where it is a file.
set -euo pipefail

usage() { echo "usage: $0 FOLDER [--config FILE]" >&2; exit 2; }
[ $# -ge 1 ] || usage
folder=$1; shift
sendonce=${SENDONCE:-sendonce}
umask 077
[ -s "$folder/lost-from" ] || { echo "restore: $folder is no backup of scripts/backup.sh" >&2; exit 2; }
lost_from=$(cat "$folder/lost-from")

case ${DATABASE_URL:-} in
    postgres://* | postgresql://*)
        url=$(printf '%s' "$DATABASE_URL" | sed -E 's/([?&])statement-cache-capacity=[0-9]+&?/\1/; s/[?&]$//')
        # All or nothing: a restore that fails leaves what was there.
        pg_restore --clean --if-exists --no-owner --no-privileges --single-transaction --exit-on-error \
            --dbname="$url" "$folder/sendonce.dump"
        ;;
    *)
        file=${DATABASE_URL:-sqlite://${SENDONCE_DATA_DIR:-data}/sendonce.db}
        file=${file#sqlite://}; file=${file%%\?*}
        [ -s "$folder/sendonce.db" ] || { echo "restore: $folder has no sendonce.db" >&2; exit 1; }
        if [ -e "$file" ]; then
            # The lock that a server holds on its file.
            if command -v flock >/dev/null && ! flock --nonblock "$file" true; then
                echo "restore: a process serves $file; end it first" >&2
                exit 1
            fi
            kept=$file.before-$(date -u +%Y%m%dT%H%M%SZ)
            mv "$file" "$kept"
            for tail in -wal -shm; do [ ! -e "$file$tail" ] || mv "$file$tail" "$kept$tail"; done
            echo "kept what was there as $kept"
        fi
        cp "$folder/sendonce.db" "$file.part"
        sync "$file.part" 2>/dev/null || sync
        mv "$file.part" "$file"
        ;;
esac
"$sendonce" restore-complete --lost-from "$lost_from" "$@"
