#!/usr/bin/env bash
# Runs all tests. Needs a Rust toolchain, a C compiler and PostgreSQL; installs the last two where they are missing.
# FERMATA_TEST_POSTGRES=postgres://… uses a PostgreSQL server that is there already.
#
#   scripts/test.sh                 everything
#   scripts/test.sh -p fermata-core one crate (arguments go to cargo test)
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cc >/dev/null 2>&1; then
  echo "a C compiler is needed to build SQLite; installing gcc" >&2
  apt-get update -qq && apt-get install -y -qq gcc libc6-dev >/dev/null
fi

if [ -z "${FERMATA_TEST_POSTGRES:-}" ] && ! command -v initdb >/dev/null 2>&1 \
  && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
  echo "the tests start PostgreSQL servers of their own; installing postgresql" >&2
  apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null
fi

# All of one test binary's failures are worth seeing, so later binaries run even when an earlier one fails.
if [ "$#" -gt 0 ]; then
  exec cargo test --no-fail-fast "$@"
fi
cargo test --workspace --all-features --no-fail-fast
