#!/bin/sh
# Runs a command under a real Linux kernel of its own (one that has GRE), shows
# its output as it comes, and ends with its exit status.
#
#   guest.sh [-b uml|qemu] [-t SECONDS] [-s FOLDER]... -- COMMAND [ARG...]
#
#   -b  which kernel (default: $ADIT_LAB_BACKEND, or uml, or qemu where uml cannot run)
#   -t  time limit, default 600
#   -s  a folder the command may really write to; all else that it writes is
#       thrown away with the guest
#
# Exit status: the command's; 124 past the time limit; 2 when the lab is not
# installed or the guest ended without a status; 130, 143 … when interrupted.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${ADIT_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/adit-lab}
mem=${ADIT_LAB_MEM:-512}                     # MiB

die() { echo "guest.sh: $*" >&2; exit 2; }
usage() { die "usage: guest.sh [-b uml|qemu] [-t SECONDS] [-s FOLDER]... -- COMMAND [ARG...]"; }
need() {  # need PROGRAM PACKAGE
  [ -x "$1" ] || command -v "$1" >/dev/null ||
    die "$1 is missing: install the Debian package $2, or run $here/prepare.sh $backend"
}

# This UML saves registers in a space that is too small for those of a processor with AMX: its first process ends at once.
lacks_uml() { grep -qw amx_tile /proc/cpuinfo; }
fitting=uml
! lacks_uml || fitting=qemu
backend=${ADIT_LAB_BACKEND:-$fitting} limit=600 shares=
while getopts b:t:s: option; do
  case $option in
    b) backend=$OPTARG ;;
    t) limit=$OPTARG ;;
    s) folder=$(realpath -e -- "$OPTARG") || exit 2
       if [ ! -d "$folder" ] || [ "$folder" = / ]; then die "-s $OPTARG: not a folder to share"; fi
       shares="$shares$folder
" ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
case $limit in '' | 0 | *[!0-9]*) die "-t takes whole seconds" ;; esac

# What the guest itself will run is checked here, where the message can be read.
need /bin/busybox busybox-static
need /sbin/modprobe kmod
case $backend in
  uml)
    need linux.uml user-mode-linux
    ! lacks_uml || die "uml cannot run on this processor, which has AMX: use qemu" ;;
  qemu)
    need qemu-system-x86_64 qemu-system-x86
    [ -e "$cache/initrd" ] ||
      die "no guest kernel in $cache: run $here/prepare.sh qemu" \
        "(it unpacks the Debian package linux-image-amd64)" ;;
  *) usage ;;
esac

job='' vm='' show=''
# The guest leads a process group of its own ('setsid' below; a UML guest has
# many processes). First the leader, so that it starts no more of them. Nothing
# is lost: what counts is in the job folder by the time a guest powers off.
end_guest() {
  { kill -s KILL "$vm"; kill -s KILL -- "-$vm"; wait "$vm"; } 2>/dev/null || :
}
# shellcheck disable=SC2317  # called by the trap
cleanup() {
  trap '' HUP INT TERM
  [ -z "$vm" ] || end_guest
  [ -z "$show" ] || kill "$show" 2>/dev/null || :
  [ -z "$job" ] || rm -rf "$job"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
job=$(mktemp -d)
job=$(realpath "$job")
# These go on the guest kernel's command line, where nothing can be quoted.
case $job$cache in
  *[!A-Za-z0-9_./-]*) die "TMPDIR and the cache folder: only letters, digits and _ . / - in their names" ;;
esac

# --- what the guest is to run --------------------------------------------------
quote() { printf '%s\n' "$1" | sed "s/'/'\\\\''/g; 1s/^/'/; \$s/\$/'/"; }
{
  printf 'cd '; quote "$PWD"; echo '[ $? = 0 ] || exit 126'
  # Names from awk, not from the lines of 'env': values may have lines, too.
  awk 'BEGIN { for (v in ENVIRON) if (v ~ /^ADIT_[A-Za-z0-9_]*$/) print v }' |
    while read -r name; do
      value=; eval "value=\$$name"
      printf 'export %s=' "$name"; quote "$value"
    done
  # The caller may be an ordinary user; the command is root and wants ip, tc …
  printf 'export PATH='; quote "$PATH:/usr/local/sbin:/usr/sbin:/sbin"
  for word; do quote "$word" | sed '$s/$/ \\/'; done
  echo
} >"$job/cmd"
printf '%s\n%s' "$job" "$shares" >"$job/shares"
cp "$here/init.sh" "$job/init"
chmod 755 "$job" "$job/init"

# --- boot ----------------------------------------------------------------------
words="loglevel=1 lab_backend=$backend lab_job=$job lab_cache=$cache lab_limit=$limit"
case $backend in
  uml)
    # A UML guest's memory is a file in TMPDIR; on a disk it would be written back.
    free=$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
    if [ -w /dev/shm ] && [ "${free:-0}" -ge "$mem" ]; then export TMPDIR=/dev/shm; fi
    # shellcheck disable=SC2086  # several words
    set -- linux.uml mem="${mem}M" uml_dir="$job" umid=uml \
      rootfstype=hostfs rootflags=/ ro init="$job/init" \
      con=null con0=null,fd:1 console=tty0 $words ;;
  qemu)
    # The host's root twice: read-only and cached hard for the overlay, and
    # writable with little caching for the shared folders.
    set -- qemu-system-x86_64 -M pc -accel tcg,thread=multi -cpu qemu64 -smp 2 -m "$mem" \
      -nodefaults -no-user-config -display none -no-reboot -serial stdio \
      -fsdev local,id=host,path=/,security_model=none,multidevs=remap,readonly=on \
      -device virtio-9p-pci,fsdev=host,mount_tag=host \
      -fsdev local,id=share,path=/,security_model=none,multidevs=remap \
      -device virtio-9p-pci,fsdev=share,mount_tag=share \
      -kernel "$cache/vmlinux" -initrd "$cache/initrd" \
      -append "console=ttyS0 quiet panic=-1 softlockup_panic=1 watchdog_thresh=30 mitigations=off $words" ;;
esac

# The output goes by way of a pipe. So the guest never gets hold of the caller's
# terminal (both backends would switch it to raw mode), and the pipe's end is the
# guest's end: to limit the reader's time is to limit the guest's.
mkfifo "$job/out"
timeout --foreground "$limit" cat <"$job/out" & show=$!
setsid "$@" </dev/null >"$job/out" 2>"$job/log" & vm=$!
shown=0 status=0
wait "$show" || shown=$?
show=
if [ "$shown" = 0 ]; then
  { wait "$vm" || status=$?; } 2>/dev/null
else
  end_guest
fi
vm=

# The file first: a command may have ended just before the limit.
[ ! -s "$job/rc" ] || exit "$(cat "$job/rc")"
case $shown in
  0) cat "$job/log" >&2
     die "the guest ($backend) died: no exit status of the command, its kernel ended with $status" ;;
  124) echo "guest.sh: over the time limit of $limit s" >&2; exit 124 ;;
  *) exit "$shown" ;;                   # nobody reads our output any more
esac
