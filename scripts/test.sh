#!/usr/bin/env bash
# Runs all tests. Needs a Rust toolchain, a C compiler, PostgreSQL and chromium; installs the last three where they are missing.
# FERMATA_TEST_POSTGRES=postgres://… uses an existing PostgreSQL server instead of starting its own.
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
  echo "the tests start their own PostgreSQL servers; installing postgresql" >&2
  apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null
fi

if ! command -v chromium >/dev/null 2>&1; then
  echo "the tests open the dashboard in a browser; installing chromium" >&2
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi

# Files that interrupted tests leave behind are removed with this folder. It is in memory if a few gigabytes are free there: the
# tests create and drop hundreds of databases with hundreds of files each. PostgreSQL may run as another user, so the folder must
# be readable. A server that is ending may still write, so removing it is tried for ten seconds.
GIGABYTE=1048576 # in kilobytes
has_room() {
  [ "$(df --output=avail -k "$1" | tail -1)" -gt $((4 * GIGABYTE)) ] \
    && [ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -gt $((8 * GIGABYTE)) ]
}
# Tests of the documentation are executed there.
can_execute() {
  cp "$(type -P true)" "$1/true" && "$1/true"
}
TMPDIR=$(mktemp -d -p /dev/shm 2>/dev/null) || TMPDIR=
if [ -n "$TMPDIR" ] && ! { has_room "$TMPDIR" && can_execute "$TMPDIR"; } 2>/dev/null; then
  rm -rf "$TMPDIR"
  TMPDIR=
fi
[ -n "$TMPDIR" ] || TMPDIR=$(unset TMPDIR && mktemp -d)
export TMPDIR
chmod 755 "$TMPDIR"
trap 'for _ in {1..100}; do rm -rf "$TMPDIR" 2>/dev/null && break; sleep 0.1; done' EXIT

# The tests run in their own process group, so that an interrupt ends all of them. PostgreSQL servers end with the process
# that started them.
tests=
trap '[ -z "$tests" ] || kill -KILL -- "-$tests" 2>/dev/null; wait; exit 130' INT TERM HUP

# Later test binaries run even when an earlier one failed, so that one run shows all failures.
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
server=${FERMATA_TEST_POSTGRES:+the existing server}
echo "── the integration tests again, on PostgreSQL (${server:-throw-away clusters})"
# The skipped tests choose their databases themselves, or are about the dashboard, which uses the API only.
FERMATA_TEST_DATABASE=postgres run --workspace --all-features --test engine --test api --test it \
  -- --skip chaos:: --skip postgres:: --skip bench:: --skip transfer:: --skip long_running_workflows --skip browser:: --skip browser_ || result=$?
exit "$result"
