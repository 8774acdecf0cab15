#!/bin/sh
# Makes the Debian package: build.sh [--binary FILE] [--version VERSION] [--fast] [FOLDER], and prints its path.
#
#   --binary   package this program instead of building one (cargo build --release --locked)
#   --version  the package's version, if not Cargo.toml's with -1 behind it
#   --fast     compress it less
#   FOLDER     where to put it (default: target/debian)
#
# DEBFULLNAME and DEBEMAIL say who maintains the package, as everywhere in Debian; SOURCE_DATE_EPOCH
# how old it is. Needs cargo-deb (installed if missing), binutils, gzip and dpkg-dev.
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
CARGO_DEB=3.8.0

binary='' version='' fast='' folder="$target/debian"
while [ $# -gt 0 ]; do
  case $1 in
    --binary) binary=$2; shift ;;
    --version) version=$2; shift ;;
    --fast) fast=--fast ;;
    -*) echo "build.sh: there is no $1; see its first lines" >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done

command -v cargo-deb >/dev/null || cargo install --quiet --locked --version "$CARGO_DEB" cargo-deb
if [ -z "$binary" ]; then
  cargo build --quiet --release --locked
  binary=$target/release/adit
fi
[ -n "$version" ] || version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-1
maintainer="${DEBFULLNAME:-The adit authors} <${DEBEMAIL:-adit@users.noreply.example.org}>"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH

# All that cargo-deb takes from a target folder is put into one of its own, so that builds can be beside
# each other, and nothing is compiled for it.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
made=$stage/release
mkdir -p "$made/completions"
install -m 755 "$binary" "$made/adit"
strip --remove-section=.comment --remove-section=.note "$made/adit"
"$made/adit" man --dir "$made/man"
gzip -9n "$made"/man/*
for shell in bash zsh fish; do
  "$made/adit" completions $shell >"$made/completions/$shell"
done
packaging/deb/third-party.sh >"$made/third-party"
gzip -9n "$made/third-party"
gzip -9nc CHANGELOG.md >"$made/changelog.gz"
gzip -9n >"$made/changelog.Debian.gz" <<END
adit ($version) unstable; urgency=medium

  * What has changed is in /usr/share/doc/adit/changelog.gz.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END

mkdir -p "$folder"
# shellcheck disable=SC2086 # an option or none
CARGO_TARGET_DIR=$stage cargo deb $fast --quiet --locked --no-build --no-strip --no-separate-debug-symbols \
  --deb-version "$version" --maintainer "$maintainer" --output "$folder/" >&2
echo "$folder/adit_${version}_$(dpkg --print-architecture).deb"
