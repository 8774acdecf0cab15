#!/bin/sh
# curl, for the places of howto.rs, where there is no internet: what Cloudflare's API answers is among the fixtures.
set -eu
for url; do :; done
case $url in
  https://api.cloudflare.com/client/v4/accounts/*/magic/*)
    list=${url##*/}
    jq --slurp --exit-status ".[] | select(.result | has(\"${list#cf_}\"))" "$ROOT/fixtures/import/whole.json" ;;
  *) exec /usr/bin/curl --silent --show-error --fail "$@" ;;
esac
