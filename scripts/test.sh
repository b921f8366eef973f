#!/usr/bin/env bash
# Runs all tests. Needs a Rust toolchain, a C compiler and PostgreSQL; installs the last two where they are missing.
# FERMATA_TEST_POSTGRES=postgres://… uses a PostgreSQL server that is there already.
#
#   scripts/test.sh                 everything, and the integration tests a second time on PostgreSQL
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

# Whatever tests leave behind when they are interrupted is below here. PostgreSQL may run as another user. A server that ends
# may still write.
TMPDIR=$(mktemp -d)
export TMPDIR
chmod 755 "$TMPDIR"
trap 'for _ in {1..100}; do rm -rf "$TMPDIR" 2>/dev/null && break; sleep 0.1; done' EXIT

# Tests are a process group of their own, so that an interrupt ends all of them, wherever it came from. PostgreSQL servers
# end with the process that started them.
tests=
trap '[ -z "$tests" ] || kill -KILL -- "-$tests" 2>/dev/null; wait; exit 130' INT TERM HUP

# All of one test binary's failures are worth seeing, so later binaries run even when an earlier one fails.
run() {
  set -m
  cargo test --no-fail-fast "$@" &
  tests=$!
  set +m
  wait "$tests"
}

if [ "$#" -gt 0 ]; then
  run "$@"
  exit
fi

result=0
run --workspace --all-features || result=$?
server=${FERMATA_TEST_POSTGRES:+the server that is there already}
echo "── the integration tests again, on PostgreSQL (${server:-throw-away clusters})"
# Those of several processes are on PostgreSQL anyway.
FERMATA_TEST_DATABASE=postgres run --workspace --all-features --test engine --test api --test it \
  -- --skip chaos:: --skip postgres:: || result=$?
exit "$result"
