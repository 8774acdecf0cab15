#!/bin/sh
# Boots systemd as process 1 of namespaces of its own: boot.sh FOLDER PROGRAM PATH [KEPT...]. The root is this
# machine's under a layer in memory, so that nothing of it changes, with FOLDER.files, with PROGRAM at PATH, and
# with copies of the KEPT ones of the folders that are otherwise empty.
set -eu
base=$1

if [ "$2" = inside ]; then
  root=$base/root
  mount -t proc proc "$root/proc"
  # Settings of the whole machine are not the trial's.
  mount --bind "$root/proc/sys" "$root/proc/sys"
  mount -o remount,bind,ro "$root/proc/sys"
  mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
  mount -o remount,bind,rw "$root/proc/sys/net"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs none "$root/sys/fs/cgroup"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  ip link set lo up
  # As at the boot of a machine; systemd leaves that to whoever starts it in a container.
  mount --make-rshared "$root"
  exec chroot "$root" env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=trial.target --log-target=journal --show-status=no
fi

mount --make-rprivate /
mount -t tmpfs -o mode=755 none "$base"
mkdir "$base/upper" "$base/work" "$base/root" "$base/cgroup"
root=$base/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$root"
for folder in run tmp var/lib var/log dev; do
  mount -t tmpfs -o mode=755 none "$root/$folder"
done
mkdir "$root/dev/shm" "$root/dev/pts" "$root/var/log/journal"
mount -t devpts -o newinstance,ptmxmode=0666 none "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
cp -r "$base.files/." "$root/"
touch "$root$3"
mount --bind "$2" "$root$3"
shift 3
for folder; do
  cp -a "$folder" "$root$folder"
done

# Its control groups are below one of its own.
mount -t cgroup2 cgroup2 "$base/cgroup"
group=$base/cgroup/adit-trial-$$
mkdir "$group"
echo $$ >"$group/cgroup.procs"
unshare --pid --net --uts --ipc --cgroup --mount --fork --kill-child "$0" "$base" inside || true
echo $$ >"$base/cgroup/cgroup.procs"
find "$group" -depth -type d -exec rmdir {} +
