#!/bin/sh
# Prints the crates that are part of the program, and the notices that their licences want to be passed on.
set -eu
cd "$(dirname "$0")/../.."
list=$(mktemp)
trap 'rm -f "$list"' EXIT
cargo tree --quiet --locked --edges normal --prefix none --no-dedupe --format '{p}|{l}' |
  grep -v '^adit v' | sed 's/ (proc-macro)//' | LC_ALL=C sort -u >"$list"
echo 'adit contains the crates below (https://crates.io), each under its own licence.'
# Where cargo keeps their sources.
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
while IFS='|' read -r crate licence; do
  printf '\n== %s: %s\n' "$crate" "$licence"
  name=${crate%% v*} number=${crate##* v}
  # Of the licences themselves every Debian system has a copy of Apache's; the notices are in the others.
  set -- "$sources"/*/"$name-$number"
  [ -d "$1" ] || { echo "third-party.sh: $crate: no sources in $sources" >&2; exit 1; }
  for file in "$1"/LICEN[CS]E* "$1"/COPYING* "$1"/NOTICE*; do
    [ -f "$file" ] || continue
    case ${file##*/} in *[Aa][Pp][Aa][Cc][Hh][Ee]*) continue ;; esac
    echo
    cat "$file"
  done
done <"$list"
