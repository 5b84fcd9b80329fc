#!/bin/sh
# Prints the browser that the tests drive: $CHROMIUM, or what is usually there. False where there is none.
for found in "${CHROMIUM:-}" /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome \
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" "/Applications/Chromium.app/Contents/MacOS/Chromium"; do
    if [ -n "$found" ] && [ -x "$found" ]; then
        printf '%s\n' "$found"
        exit 0
    fi
done
exit 1
