#!/bin/sh
# SPDX-License-Identifier: MIT
# In a fresh Debian (tools/fresh-root.sh): what the README tells a new user to do. He has `make`, the tree, and a sudo
# that asks no password.
set -eu

apt-get update -qq
apt-get install -y -qq --no-install-recommends make sudo >/dev/null
echo 'tester ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/tester
echo 'Defaults env_keep += "http_proxy https_proxy no_proxy"' >>/etc/sudoers.d/tester
install -d -o tester /home/tester/burthen
tar -xf /given/tree.tar -C /home/tester/burthen
chown -R tester: /home/tester
su tester -c '
    cd ~/burthen
    make demo >demo.log 2>&1 || { tail -n 60 demo.log; exit 1; }
    cat demo.log | tail -n 40
    # The second run fetches and rebuilds nothing.
    make demo >again.log 2>&1
    if grep -E "unpacking|building|installing" again.log; then echo "the second run did something"; exit 1; fi
    make install DESTDIR=$PWD/staged >/dev/null
    staged/usr/local/bin/burthen plan build/models/*.gguf --ram-budget 96M | tail -n 3
    make uninstall DESTDIR=$PWD/staged
    [ ! -e staged ] || { find staged; exit 1; }
    [ -z "${README_CHECK:-}" ] || make check'
echo "the README holds on $(. /etc/os-release && echo "$PRETTY_NAME")"
