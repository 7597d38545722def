#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pictures of the router's page in docs/images, taken from a router with real models.

usage: tools/page-pictures.py     (after make check; BT_BIN=FILE: of another build)"""

import os
import pathlib
import sys
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("BT_BIN", str(SOURCE / "build/release/burthen"))
os.environ.setdefault("BT_SOURCE", str(SOURCE))
sys.path.insert(0, str(SOURCE / "tests/support"))

import browser  # noqa: E402
import harness  # noqa: E402
import router  # noqa: E402

CONFIG = f"""
ram_budget: 1020M
hold: 0
models:
  smollm2: {{model: {harness.SMOLLM2}, args: "-c 2048 -np 1 -t 1"}}
  smollm2-long: {{model: {harness.SMOLLM2}, args: "-c 8192 -np 1 -t 1"}}
  gemma3: {{model: {harness.GEMMA3}, args: "-c 1024 -np 1 -t 1"}}
"""
VISITS = (("smollm2", 8, 6), ("gemma3", 24, 10), ("smollm2-long", 24, 12), ("gemma3", 8, 4), ("smollm2", 40, 9))  # tokens, pause


def main():
    folder = SOURCE / "docs/images"
    folder.mkdir(exist_ok=True)
    with router.Router(CONFIG) as serve, browser.Browser() as page:
        page.resize(1280, 860)
        page.go(f"http://127.0.0.1:{serve.port}/")
        page.wait(lambda: page.text("#link") == "Live")
        for model, tokens, rest in VISITS:
            serve.chat(model, "Tell me about ships.", tokens)
            time.sleep(rest)
        last = threading.Thread(target=lambda: serve.chat("smollm2-long", "And about the sea?", 200))
        last.start()
        time.sleep(1.5)
        page.picture(folder / "serve-desktop.png")
        page.resize(360, 760)
        time.sleep(1.2)
        page.picture(folder / "serve-phone.png")
        last.join()
    for picture in sorted(folder.glob("serve-*.png")):
        print(f"{picture.relative_to(SOURCE)}: {picture.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
