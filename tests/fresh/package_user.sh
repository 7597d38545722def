#!/bin/sh
# SPDX-License-Identifier: MIT
# What a user does first with an installed package: plan, run, an unmodified llama-server in a budget, a router. Started by
# package.sh, in a fresh Debian. All texts must be the one that is expected (/given/expected: of the build of the tree).
set -eu

model=$HOME/models/$(basename /given/*.gguf)
prompt="Once upon a time"
expected=$(cat /given/expected)
fail() {
    echo "failed: $*" >&2
    exit 1
}
is_expected() { [ "$2" = "$expected" ] || fail "$1 says \"$2\", not \"$expected\""; }
# wait_for URL: it answers, within a minute
wait_for() {
    for _ in $(seq 600); do
        if curl -sf "$1" >/dev/null; then return; fi
        sleep 0.1
    done
    fail "$1 does not answer: $(tail -n 20 "$HOME/log")"
}
content() { sed -n 's/.*"content":"\([^"]*\)".*/\1/p' | head -n 1; }

cd "$HOME/models" # where a library lies that ggml's own search would load
burthen --version
burthen plan "$model" --ram-budget 96M -c 512 | tail -n 1
text=$(burthen run "$model" -p "$prompt" -n 24 --greedy --ram-budget 96M -c 512 --quiet)
is_expected "run" "$text"
[ ! -e /tmp/loaded ] || fail "run has loaded a library of the working directory"
status=0
burthen run "$model" -p "$prompt" --ram-budget 10M >/dev/null 2>"$HOME/log" || status=$?
[ "$status" = 3 ] || fail "10M is refused with $status"

cd "$HOME"
burthen exec --ram-budget 96M -- llama-server -m "$model" -c 512 -np 1 --port 18080 >"$HOME/log" 2>&1 &
server=$!
wait_for http://127.0.0.1:18080/health
body="{\"prompt\":\"$prompt\",\"n_predict\":24,\"temperature\":0}"
is_expected "llama-server" "$(curl -s http://127.0.0.1:18080/completion -d "$body" | content)"
peak=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$server/status")
[ "$peak" -le $((96 * 1024)) ] || fail "llama-server held $peak KiB"
echo "llama-server in 96 MiB: VmHWM $peak KiB, with $(sed -n 's:.*/\(libggml-cpu-.*\.so\)$:\1:p' "/proc/$server/maps" | sort -u)"
kill "$server"
wait "$server" || true

burthen serve "$HOME/models" --listen 127.0.0.1:18081 --ram-budget 600M >"$HOME/log" 2>&1 &
router=$!
wait_for http://127.0.0.1:18081/health
name=$(curl -s http://127.0.0.1:18081/v1/models | sed 's/.*"id": *"\([^"]*\)".*/\1/')
body="{\"model\":\"$name\",\"prompt\":\"$prompt\",\"n_predict\":24,\"temperature\":0}"
is_expected "the router" "$(curl -s http://127.0.0.1:18081/completion -d "$body" | content)"
kill "$router"
wait "$router" || fail "the router ended with $?: $(tail -n 20 "$HOME/log")"
if pgrep llama-server >/dev/null 2>&1; then fail "a server is left"; fi
