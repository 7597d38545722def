#!/bin/sh
# SPDX-License-Identifier: MIT
# In a fresh Debian (tools/fresh-root.sh), as root: the package is installed with what it depends on, used by a normal
# user (package_user.sh), upgraded to itself, and removed. Nothing of it may be left.
set -eu

# All files but those that dpkg, apt and ldconfig keep of what they did, the user's own, and what tells of no package.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /given -o -path /home -o -path /tmp -o -path /run \
        -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/log -o -path /var/cache \) -prune -o -print | sort
}

packages() { dpkg-query -W -f '${Package}\n' | sort; }

apt-get update -qq
files >/tmp/before
packages >/tmp/packages
apt-mark showmanual | sort >/tmp/manual
apt-get install -y -qq /given/burthen_*.deb >/tmp/apt.log 2>&1 || {
    cat /tmp/apt.log
    exit 1
}
echo "installed: $(dpkg-query -W -f '${Package} ${Version}, ${Installed-Size} KiB' burthen)"
if dpkg -L burthen | grep -q '/man1/'; then [ -s /usr/share/man/man1/burthen.1.gz ]; fi

mkdir -p /home/tester/models
cp /given/*.gguf /home/tester/models/
cp /given/*.so /home/tester/models/ # that nobody asked for: see package_user.sh
chown -R tester: /home/tester
apt-get install -y -qq --no-install-recommends curl >/tmp/apt.log 2>&1
su tester -c 'sh /given/package_user.sh'

apt-get install -y -qq --reinstall /given/burthen_*.deb >/tmp/apt.log 2>&1
apt-get purge -y -qq burthen curl >/tmp/apt.log 2>&1
apt-get autoremove -y -qq --purge >/tmp/apt.log 2>&1
files >/tmp/after
diff /tmp/before /tmp/after >/tmp/left || true
if grep -E '^> .*(burthen|llama|ggml)' /tmp/left || grep '^<' /tmp/left; then
    echo "this is left, or gone"
    exit 1
fi
# A package that another one in the root recommends stays after `autoremove`, by apt's own rule: its files are its own.
sed -n 's/^> //p' /tmp/left | while IFS= read -r file; do
    dpkg-query -S "$file" >/dev/null 2>&1 || echo "$file"
done >/tmp/strays
if [ -s /tmp/strays ]; then
    echo "this is left:"
    cat /tmp/strays
    exit 1
fi
packages | comm -13 /tmp/packages - >/tmp/kept
if [ -s /tmp/kept ]; then echo "kept by apt, for others: $(tr '\n' ' ' </tmp/kept)"; fi
[ "$(apt-mark showmanual | sort)" = "$(cat /tmp/manual)" ]
if dpkg-query -W -f '${db:Status-Abbrev}' burthen 2>/dev/null | grep -q '^[^u]'; then
    echo "dpkg still knows of it"
    exit 1
fi
echo "the package holds on $(. /etc/os-release && echo "$PRETTY_NAME")"
