# SPDX-License-Identifier: MIT
"""A browser for tests: Chromium without a screen, driven by its own chromedriver over WebDriver (W3C), nothing between.

    with browser.Browser(width=1280, height=900) as page:
        page.go("http://127.0.0.1:8080/")
        page.run("return document.title")
        page.wait(lambda: page.text("#link") == "Live")
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import harness

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver, 12.1
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Shift": "\ue008", "Space": " "}
ANSWER_S = 120


class Failed(AssertionError):
    """What the driver says."""


def programs():
    """(browser, driver), or None where one is missing."""
    found = (shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser"),
             shutil.which("chromedriver"))
    return found if all(found) else None


def require():
    if not programs():
        harness.skip("chromium and chromedriver are not there")


def free_port():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        return server.getsockname()[1]


class Browser:
    def __init__(self, width=1280, height=900, arguments=()):
        chromium, driver = programs()
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.port, self.session = free_port(), None
        self.process = subprocess.Popen([driver, f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        stdin=subprocess.DEVNULL, env=os.environ | {"HOME": self._folder.name})
        options = ["--headless=new", f"--window-size={width},{height}", "--hide-scrollbars", "--disable-gpu", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                   f"--user-data-dir={self._folder.name}/profile", *arguments]
        options.append("--no-sandbox")  # root has none, nor have many containers; what is opened is our own
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"binary": chromium, "args": options}}
        try:
            self._await_driver()
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except Exception:
            self.close()
            raise
        self.session = made["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.session:
            with contextlib.suppress(Exception):
                self._ask("DELETE", "")
        self.process.terminate()
        self.process.wait()
        self._folder.cleanup()

    def _await_driver(self):
        def answers():
            with contextlib.suppress(OSError):
                return self._ask("GET", "/status")["ready"]
            return False

        if not harness.wait_for(answers):
            raise Failed("chromedriver does not answer")

    def _ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        path = path if path in ("/status", "/session") else f"/session/{self.session}{path}"
        connection.request(method, path, None if method != "POST" else json.dumps(body or {}), {"Content-Type": "application/json"})
        with contextlib.closing(connection):
            value = json.loads(connection.getresponse().read())["value"]
        if isinstance(value, dict) and value.get("error"):
            raise Failed(f"{value['error']}: {value['message'][:600]}")
        return value

    def command(self, name, **parameters):
        """Of Chromium's own protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    # ---- the page ----

    def go(self, url):
        self._ask("POST", "/url", {"url": url})

    def run(self, script, *args):
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def wait(self, what, seconds=60):
        """What what() said last; it is asked until that is true, or the time is over, which only says how long a failure takes."""
        end = time.monotonic() + seconds
        while True:
            said = what()
            if said or time.monotonic() > end:
                return said
            time.sleep(0.05)

    def text(self, selector):
        return self.run("const e = document.querySelector(arguments[0]); return e ? e.innerText : null", selector)

    def find(self, selector):
        return self._ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant', block: 'center'})", selector)
        self._ask("POST", f"/element/{self.find(selector)}/click")

    def type(self, selector, text):
        self._ask("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def fill(self, selector, text):
        """Another value for a field, as if it was typed."""
        self.run("const e = document.querySelector(arguments[0]); e.value = arguments[1];"
                 "e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true}))",
                 selector, text)

    def press(self, *names):
        """Keys down in this order, and up in the other."""
        keys = [KEYS.get(name, name) for name in names]
        actions = [{"type": "keyDown", "value": key} for key in keys] + [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def resize(self, width, height, scale=1):
        """Of the page's own view."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def media(self, **features):
        """As prefers_color_scheme="dark"."""
        self.command("Emulation.setEmulatedMedia",
                     features=[{"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def complaints(self):
        """What the console has said since the last call, of warnings and errors."""
        lines = self._ask("POST", "/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] in ("WARNING", "SEVERE")]

    def picture(self, path, whole=False):
        """whole: of all of the page, not of what the window shows."""
        more = {}
        if whole:
            size = self.command("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        data = self.command("Page.captureScreenshot", format="png", **more)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
