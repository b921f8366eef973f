#!/usr/bin/env bash
# Checks that the documents name only what exists: source files, tests (`file.rs::test`), and linked files and headings.
set -euo pipefail
cd "$(dirname "$0")/.."
files=$(git ls-files 2>/dev/null || find . -type f -not -path "./target/*")
bad=0
problem() { echo "$1" >&2; bad=1; }

# Names of source files may be shortened from the left: `driver/stop.rs`.
for page in README.md ARCHITECTURE.md CONTRIBUTING.md docs/*.md docs/dialects/*.md; do
  while read -r name; do
    file=${name%%::*}
    matches=$(grep -E "(^|/)${file//./\\.}$" <<<"$files" || true)
    if [ -z "$matches" ]; then
      problem "$page: there is no file $file"
    elif [ "$name" != "$file" ] && ! xargs -d '\n' grep -qE "fn ${name##*::}\b" <<<"$matches"; then
      problem "$page: there is no test ${name##*::} in $file"
    fi
  done < <(grep -oE '`[a-z_/0-9]+\.rs(::[a-z_0-9]+)?`' "$page" | tr -d '`' | sort -u)

  # A heading's anchor is its text in lower case, spaces as `-`, without other punctuation.
  while read -r link; do
    path=${link%%#*}
    target=$page
    [ -z "$path" ] || target=$(dirname "$page")/$path
    [ -e "$target" ] || { problem "$page: the link $link leads nowhere"; continue; }
    case $link in
      *.md'#'* | '#'*)
        anchors=$(grep -E '^#+ ' "$target" | sed -E 's/^#+ //' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g')
        grep -qxF -- "${link##*#}" <<<"$anchors" || problem "$page: the link $link names no heading of $target"
        ;;
    esac
  done < <(grep -oE '\]\([^) ]+\)' "$page" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^[a-z]+://' | sort -u)
done
exit "$bad"
