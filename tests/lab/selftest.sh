#!/bin/sh
# Checks the lab itself: selftest.sh [uml|qemu|all]     (default: all; two minutes)
# The last line is 'N passed, N failed'; the exit status is non-zero on failure.
set -u
here=$(cd "$(dirname "$0")" && pwd)
passed=0 failed=0
check() {  # check WHAT COMMAND...: passes if the command succeeds
  what=$1; shift
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1)); echo "ok      $what"
  else
    failed=$((failed + 1)); echo "FAILED  $what"; sed 's/^/        | /' "$log"
  fi
}
not() { ! "$@"; }
is() { [ "$1" = "$2" ] || { echo "is '$1', should be '$2'"; false; }; }
work=$(mktemp -d) log=$work/log
trap 'rm -rf "$work"' EXIT

# --- inside the guest ----------------------------------------------------------
# Two network namespaces, near and far, joined by a veth pair; far has the
# kernel's tunnels, and so has near, for a ping from kernel to kernel.
near() { ip netns exec near "$@"; }
far() { ip netns exec far "$@"; }
pings() { near ping -q -c 2 -i 0.1 -W 2 "$1"; }
wires() {
  ip netns add near && ip netns add far &&
  ip link add wire netns near type veth peer name wire netns far &&
  ip -n near addr add 192.0.2.1/24 dev wire &&
  ip -n far addr add 192.0.2.2/24 dev wire &&
  ip -n near addr add 2001:db8::1/64 dev wire nodad &&
  ip -n far addr add 2001:db8::2/64 dev wire nodad &&
  ip -n near link set wire up && ip -n far link set wire up
}
tunnel() {  # tunnel NAME NET ARG...: the same device at both ends, addresses in 10.NET and fd00:NET::
  name=$1 net=$2; shift 2
  case $* in *ip6*) n=2001:db8::1 f=2001:db8::2 ;; *) n=192.0.2.1 f=192.0.2.2 ;; esac
  ip -n near "$@" local $n remote $f && ip -n far "$@" local $f remote $n &&
  ip -n near addr add "10.$net.0.0/31" dev "$name" && ip -n far addr add "10.$net.0.1/31" dev "$name" &&
  ip -n near addr add "fd00:$net::/127" dev "$name" nodad &&
  ip -n far addr add "fd00:$net::1/127" dev "$name" nodad &&
  ip -n near link set "$name" up && ip -n far link set "$name" up
}
nodad() { not sh -c 'ip -n far -6 addr show dev wire scope global | grep tentative'; }
lossy() {  # some, but not all, of 100 pings get through
  near tc qdisc replace dev wire root netem loss 30% limit 100000 || return 1
  got=$(near ping -q -c 100 -i 0.01 -W 1 10.1.0.1 | sed -n 's/.* \([0-9]*\) received.*/\1/p')
  echo "$got of 100 received"
  near tc qdisc del dev wire root
  [ "$got" -gt 40 ] && [ "$got" -lt 95 ]
}
slow() {
  near tc qdisc replace dev wire root netem delay 50ms || return 1
  ms=$(near ping -q -c 3 -i 0.1 10.1.0.1 | sed -n 's,^rtt.* = \([0-9]*\).*,\1,p')
  echo "$ms ms at least"
  near tc qdisc del dev wire root
  [ "$ms" -ge 50 ]
}
sysctls() {
  far sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.gre1.accept_local=1 net.ipv6.conf.all.forwarding=1 &&
  is "$(far sysctl -n net.ipv4.conf.gre1.accept_local) $(near sysctl -n net.ipv4.ip_forward)" '1 0'
}
inside() {
  check 'two namespaces and a veth pair' wires
  check 'nodad: an address is usable at once' nodad
  check 'ping, IPv4' pings 192.0.2.2
  check 'ping, IPv6' pings 2001:db8::2
  check 'packet socket (arping)' near busybox arping -I wire -c 1 192.0.2.2
  check 'raw socket (busybox ping)' near busybox ping -c 1 192.0.2.2
  check 'ip link add type gre' tunnel gre1 1 link add gre1 type gre
  check '  IPv4 in GRE in IPv4' pings 10.1.0.1
  check '  IPv6 in GRE in IPv4' pings fd00:1::1
  check 'ip tunnel add mode gre, key and checksum' tunnel gre2 2 tunnel add gre2 mode gre key 7 csum
  check '  IPv4 in GRE in IPv4' pings 10.2.0.1
  check 'ip link add type ip6gre' tunnel gre3 3 link add gre3 type ip6gre
  check '  IPv4 in GRE in IPv6' pings 10.3.0.1
  check '  IPv6 in GRE in IPv6' pings fd00:3::1
  check 'sysctl, each namespace its own' sysctls
  check 'netem loss' lossy
  check 'netem delay' slow
  echo "$passed $failed" >"$1"
}
if [ "${1:-}" = inside ]; then inside "$2"; exit; fi

# --- outside -------------------------------------------------------------------
status() {  # status WANTED ARG...: guest.sh ends with that status
  wanted=$1; shift
  got=0
  "$here/guest.sh" -b "$backend" "$@" >"$work/out" 2>&1 || got=$?
  cat "$work/out"
  is "$got" "$wanted"
}
nothing_left() {  # of the job folder, nor of a process that has it in its arguments
  not ls -d "$work"/adit-lab.* 2>/dev/null || return 1
  for p in /proc/[0-9]*; do
    not grep -qaF "$work/adit-lab." "$p/cmdline" 2>/dev/null || { echo "left: $p"; return 1; }
  done
}
# shellcheck disable=SC2016  # the guest's shell is to expand these
carries() {  # environment, folder and arguments, whatever is in them
  ADIT_TEST="it's \"\$HOME\" \\
two lines" ADIT_EMPTY='' OTHER=no status 0 -- sh -c '
    [ "$ADIT_TEST" = "$1" ] && [ "${ADIT_EMPTY-unset}" = "" ] && [ "${OTHER-unset}" = unset ] &&
    [ "$PWD" = "$2" ] && [ "$#" = 4 ] && [ "$3" = "" ] && [ "$4" = "a b*" ]' \
    sh "it's \"\$HOME\" \\
two lines" "$PWD" '' 'a b*'
}
# shellcheck disable=SC2016  # these, too
writes() {
  mkdir "$work/shared" "$work/not-shared"
  echo host >"$work/shared/file"
  status 0 -s "$work/shared" -- sh -ec '
    cat "$1/shared/file"
    echo guest >"$1/shared/file"; mkdir "$1/shared/new"
    echo guest >"$1/not-shared/file"; cat "$1/not-shared/file"; rm -r "$1/not-shared"' sh "$work" &&
  is "$(cat "$work/shared/file")" guest && [ -d "$work/shared/new" ] && is "$(ls "$work/not-shared")" ''
}
live() {  # the first line is there well before the last
  "$here/guest.sh" -b "$backend" -- sh -c 'echo one; sleep 2; echo two >&2' | {
    read -r first && a=$(date +%s%N) && read -r second && b=$(date +%s%N)
    is "$first $second" 'one two' && echo "$(((b - a) / 1000000)) ms apart" && [ $((b - a)) -gt 1000000000 ]
  }
}
lots() {  # nothing lost or changed on the way out, even when the reader is slow
  is "$("$here/guest.sh" -b "$backend" -- seq 100000 | { sleep 4; cksum; })" "$(seq 100000 | cksum)"
}
limit() {  # long enough to boot on a busy machine
  a=$(date +%s)
  status 124 -t 12 -- sh -c 'echo started; sleep 60' && grep -q started "$work/out" &&
  [ $(($(date +%s) - a)) -le 16 ]
}
interrupted() {
  "$here/guest.sh" -b "$backend" -- sleep 60 >"$work/out" 2>&1 & pid=$!
  sleep 4; kill "$pid"; got=0; wait "$pid" || got=$?
  is "$got" 143
}

export TMPDIR="$work"
case ${1:-all} in
  uml | qemu) backends=$1 ;;
  all) backends='uml qemu' ;;
  *) echo "usage: selftest.sh [uml|qemu|all]" >&2; exit 2 ;;
esac
for backend in $backends; do
  echo "--- $backend"
  check 'exit status 0' status 0 -- true
  check 'exit status 7' status 7 -- sh -c 'exit 7'
  check 'exit status 127: no such command' status 127 -- no-such-command
  check 'exit status 137: killed' status 137 -- sh -c 'kill -9 $$'
  check 'environment, folder, arguments' carries
  check 'only shared folders are written to' writes
  check 'output is shown as it comes' live
  check 'much output, slow reader' lots
  check 'time limit: 124' limit
  check 'the guest powers off too early: 2' status 2 -- busybox poweroff -f
  check 'the kernel panics: 2' status 2 -- sh -c 'echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger; sleep 30'
  check 'interrupted: 143' interrupted
  check 'nothing is left behind' nothing_left
  mkdir "$work/$backend"
  "$here/guest.sh" -b "$backend" -s "$work/$backend" -- sh "$here/selftest.sh" inside "$work/$backend/counts"
  if read -r p f 2>/dev/null <"$work/$backend/counts"; then
    passed=$((passed + p)) failed=$((failed + f))
  else
    failed=$((failed + 1)); echo "FAILED  the checks inside the guest ended early"
  fi
  rm -rf "$work/shared" "$work/not-shared"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
