#!/usr/bin/env bash
# browser.sh: prints the path of a Chromium that starts here. One may be installed and do nothing: what Ubuntu's
# package brings into a container only asks for snap.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
  path=$(command -v "$name") || continue
  profile=$(mktemp -d)
  page=$(timeout -k 5 120 "$path" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$profile" --dump-dom about:blank 2>/dev/null) || page=
  rm -rf "$profile"
  if [[ $page == *"<html"* ]]; then
    echo "$path"
    exit 0
  fi
  echo "$path is there and does not start" >&2
done
exit 1
