#!/bin/sh
# PID 1 of the guest. Its root is the host's root under a throw-away overlay, so
# every program of the host is there at its own path and nothing on the host can
# change; only the folders listed in JOB/shares (the first one is JOB itself) are
# the real ones. Runs JOB/cmd, leaves its exit status in JOB/rc, powers off.
#
# lab_backend, lab_job, lab_cache and lab_limit come from the kernel's command line, which
# hands words it does not know to PID 1 as environment variables. Should anything
# here fail, PID 1 ends, the kernel panics and guest.sh says that the guest died.
set -eu
: "${lab_backend:?}" "${lab_job:?}" "${lab_cache:?}" "${lab_limit:?}"
bb=/bin/busybox

# --- first round: on the kernel's root (uml: the host's own, qemu: an initramfs)
if [ -z "${lab_overlaid:-}" ]; then
  kernel=$($bb uname -r)
  $bb mount -t tmpfs tmpfs /tmp
  cd /tmp
  $bb mkdir lower share upper work root
  case $lab_backend in
    uml)
      modules=/usr/lib/uml/modules/$kernel
      $bb insmod "$modules/kernel/fs/overlayfs/overlay.ko"
      $bb mount -o bind / lower
      $bb mount -t hostfs -o / none share ;;
    qemu)                               # the initramfs has mounted /share
      modules=$lab_cache/modules/lib/modules/$kernel
      $bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro,cache=loose host lower
      $bb mount -o move /share share ;;
  esac
  $bb mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay root
  cd root
  $bb mount -t proc proc proc
  $bb mount -t sysfs sysfs sys
  $bb mount -t devtmpfs devtmpfs dev
  $bb mkdir -p dev/pts dev/shm usr/lib/modules
  $bb mount -t devpts devpts dev/pts
  $bb mount -t tmpfs -o mode=1777 tmpfs dev/shm
  $bb mount -t tmpfs -o mode=755 tmpfs run
  [ -e "usr/lib/modules/$kernel" ] || $bb ln -s "$modules" usr/lib/modules/
  while read -r folder; do
    $bb mkdir -p ".$folder"
    $bb mount -o bind "/tmp/share$folder" ".$folder"
  done <"/tmp/share$lab_job/shares"
  # PID 1 itself has to change its root: it shares it with the kernel's threads,
  # which look for /sbin/modprobe there when a module is wanted.
  export lab_overlaid=1
  $bb mount -o move . /
  exec $bb chroot . /bin/sh "$lab_job/init"
fi

# --- second round: on the overlay
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
stty -F /dev/console -opost -echo       # bytes as they are, no \r added
hostname adit-lab
mkdir -p /run/lock /run/netns
ip link set lo up
# Everything else loads itself on first use; /proc/sys/net/ipv6 cannot.
modprobe ipv6
# Should guest.sh be killed, so that it cannot end us.
(sleep $((lab_limit + 5)) && exec $bb poweroff -f) &
job=$lab_job
unset lab_backend lab_job lab_cache lab_limit lab_overlaid mem uml_dir
status=0
/bin/sh "$job/cmd" || status=$?
stty -F /dev/console -opost -echo       # waits until all output is out
echo "$status" >"$job/rc"
sync
echo 0 >/proc/sys/kernel/printk         # or "Power down" is the last line
exec $bb poweroff -f
