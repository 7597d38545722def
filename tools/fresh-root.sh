#!/bin/sh
# SPDX-License-Identifier: MIT
# Run a script in a Debian that nothing was done to yet: a root of its own, made from packages, gone afterwards.
#
# usage: tools/fresh-root.sh SUITE SCRIPT FILE...     as root; SUITE: bookworm, trixie
#
# SCRIPT and the files lie in /given there, and SCRIPT runs as root, with a user "tester" beside it. What comes from this
# machine is where packages are had: the mirror that apt is configured for, the variables of proxies and of pip, and
# certificates that it trusts beside the usual ones. Kept in build/roots: the packages of an empty root, a file a suite.
# The processes and mounts are in namespaces of their own, and end with it.
set -eu

cd "$(dirname "$0")/.."
suite=$1
script=$2
shift
[ "$(id -u)" = 0 ] || {
    echo "fresh-root: a root of Debian's is made by root" >&2
    exit 1
}
for command in mmdebstrap unshare; do
    command -v "$command" >/dev/null || {
        echo "fresh-root: $command is missing (packages: mmdebstrap, util-linux)" >&2
        exit 1
    }
done

# shellcheck disable=SC2016 # $(...) is apt's
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    sed -n '/^Debian .*debian-security/!s/^Debian //p' | head -n 1)}
[ -n "$mirror" ] || {
    echo "fresh-root: apt is configured for no mirror of Debian: set DEBIAN_MIRROR" >&2
    exit 1
}
base=build/roots/$suite.tar
if [ ! -f "$base" ]; then
    mkdir -p build/roots
    mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates "$suite" "$base.part" "$mirror"
    mv "$base.part" "$base"
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
tar -xf "$base" -C "$root" --exclude='./dev/*'
mkdir "$root/given"
cp "$@" "$root/given/"
cp /etc/resolv.conf "$root/etc/resolv.conf"
if [ -d /usr/local/share/ca-certificates ]; then
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
fi
cat >"$root/given/begin" <<EOF
set -e
mount -t proc proc /proc
mount -t sysfs -o ro sys /sys
mount -t cgroup2 -o ro cgroup /sys/fs/cgroup 2>/dev/null || true
mount -t tmpfs -o mode=755 dev /dev
for name in null zero full random urandom tty; do
    touch /dev/\$name && mount --bind /given/dev/\$name /dev/\$name
done
mkdir /dev/shm && mount -t tmpfs shm /dev/shm
ln -s /proc/self/fd /dev/fd
umount /given/dev
update-ca-certificates >/dev/null 2>&1
useradd --create-home --shell /bin/bash tester
exec sh "/given/$(basename "$script")"
EOF
mkdir "$root/given/dev"
# Nothing of this session but what packages are had by.
set -- "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root LANG=C.UTF-8 TERM=dumb
set -- "$@" DEBIAN_FRONTEND=noninteractive
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL JOBS; do
    if value=$(printenv "$name"); then set -- "$@" "$name=$value"; fi
done
# The outer shell is the first process of its namespace: what is left running ends with it.
ROOT=$root unshare --mount --pid --fork --kill-child sh -euc '
    mount --make-rprivate /
    mount --bind /dev "$ROOT/given/dev"
    chroot "$ROOT" /usr/bin/env -i "$@" sh /given/begin' sh "$@"
