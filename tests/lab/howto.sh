#!/bin/sh
# systemctl, for the places of howto.rs, where there is no service manager: VERB UNIT.
set -eu

# Asks until it holds.
await() {
  n=0
  until "$@" >/dev/null 2>&1; do
    n=$((n + 1))
    [ $n -lt 120 ] || { echo "systemctl: $unit does not begin" >&2; exit 1; }
    sleep 0.5
  done
}

verb=$1 unit=$2
case "$verb $unit" in
  'start adit' | 'restart adit')
    mkdir -p /run/adit
    adit run </dev/null >/run/log-adit 2>&1 &
    await adit status ;;
  'reload adit')
    adit reload ;;
  'start strongswan' | 'restart strongswan')
    /usr/sbin/charon-systemd </dev/null >/run/log-charon 2>&1 &
    await swanctl --stats
    swanctl --load-all ;;
  'start frr' | 'restart frr')
    install -d -o frr -g frr /run/frr
    for daemon in zebra staticd bgpd; do
      if [ $daemon != bgpd ] || grep -q ^bgpd=yes /etc/frr/daemons; then
        /usr/lib/frr/$daemon -d --log file:/run/log-$daemon
      fi
    done
    await vtysh -c 'show version'
    vtysh -b ;;
  *)
    echo "systemctl: nobody has said how to $verb $unit" >&2
    exit 1 ;;
esac
