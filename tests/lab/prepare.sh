#!/bin/sh
# Installs what the lab needs (Debian 12, amd64) and, for qemu, unpacks a guest
# kernel into the cache folder. Safe to run again: once all is in place it does
# nothing and needs neither root nor network.
#
#   prepare.sh [uml|qemu|all]      default: all
set -eu
cache=${ADIT_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/adit-lab}
meta=linux-image-amd64

want=${1:-all}
packages="busybox-static ethtool iproute2 iputils-ping kmod procps"
case $want in
  uml)  packages="$packages user-mode-linux" ;;
  qemu) packages="$packages qemu-system-x86 cpio xz-utils" ;;
  all)  packages="$packages user-mode-linux qemu-system-x86 cpio xz-utils" ;;
  *)    echo "usage: prepare.sh [uml|qemu|all]" >&2; exit 2 ;;
esac

# Another job of the same machine may be installing something.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@" >&2; }
# The package lists may be missing, or older than what the mirror still has.
twice() { "$@" || { apt update && "$@"; }; }

missing=
for p in $packages; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
# shellcheck disable=SC2086  # several words
[ -z "$missing" ] || twice apt install -y --no-install-recommends $missing
[ "$want" = uml ] && exit

# --- qemu: the kernel, the part of its modules that we can use, an initramfs ---
stamp=$(cksum <"$0")
current() { [ "$(cat "$cache/stamp" 2>/dev/null)" = "$stamp" ]; }
current && exit
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9                                    # two runs at once: one builds
current && exit
tmp=$(mktemp -d -p "$cache")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 143' HUP INT TERM

download() {
  kernel=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9]\)/\1/p')
  [ -n "$kernel" ] && (cd "$tmp" && apt -o APT::Sandbox::User=root download "$kernel")
}
twice download
dpkg -x "$tmp"/linux-image-*.deb "$tmp/x"
version=$(ls "$tmp/x/lib/modules")

# Networks, without the radios, the network cards and the like.
from=$tmp/x/lib/modules/$version to=$tmp/modules/lib/modules/$version
mkdir -p "$to/kernel"
(
  cd "$from/kernel"
  find net crypto lib arch/x86/crypto fs/9p fs/netfs fs/fscache fs/overlayfs \
      drivers/virtio drivers/char/hw_random drivers/net -name '*.ko*' |
    grep -vE '^net/(bluetooth|mac80211|wireless|nfc|sunrpc|ceph|rds|tipc|sctp|atm)/' |
    grep -E '^(net|crypto|lib|arch|fs|drivers/(virtio|char))/|^drivers/net/([^/]*|vxlan/.*|wireguard/.*|bonding/.*)$' |
    cpio -pdm --quiet "$to/kernel"
)
cp "$from"/modules.builtin* "$from/modules.order" "$to/"
find "$to" -name '*.ko.xz' -exec xz -d {} +          # what busybox insmod can read
/sbin/depmod -b "$tmp/modules" "$version"

# QEMU can boot the ELF file packed into the boot image as it is. This spares
# the emulated CPU the unpacking, which takes longer than all the rest.
image=$tmp/x/boot/vmlinuz-$version
elf() { [ "$(head -c 4 "$tmp/vmlinux" 2>/dev/null | tail -c 3)" = ELF ]; }
LC_ALL=C grep -aboP '\xfd7zXZ\x00' "$image" | while IFS=: read -r at _; do
  tail -c +$((at + 1)) "$image" | xz -dc --single-stream >"$tmp/vmlinux" 2>/dev/null || :
  elf && break
done
elf || { echo "prepare.sh: no xz-packed kernel in $image" >&2; exit 1; }

# The initramfs only gets as far as the host's files; init.sh goes on from there.
root=$tmp/root
mkdir -p "$root/bin" "$root/m" "$root/share" "$root/tmp" "$root/dev"
cp /bin/busybox "$root/bin/"
n=100
for module in virtio_pci 9pnet_virtio 9p overlay virtio_rng; do
  /sbin/modprobe -d "$tmp/modules" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r ko; do
  n=$((n + 1))
  cp "$ko" "$root/m/$n.ko"                           # numbered: the order to load them in
done
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
for m in /m/*; do /bin/busybox insmod "$m"; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap share /share
exec /bin/busybox sh "/share$lab_job/init"
INIT
chmod 755 "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1 >"$tmp/initrd")

# The stamp last: without it the next run builds again.
rm -rf "$cache/stamp" "$cache/modules"
mv "$tmp/vmlinux" "$tmp/initrd" "$tmp/modules" "$cache/"
echo "$stamp" >"$cache/stamp"
echo "prepare.sh: kernel $version is in $cache" >&2
