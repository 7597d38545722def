# SPDX-License-Identifier: MIT
"""Clients that others have written work through the router as they do with a server of their own: OpenAI's Python client and
curl, with keys, streams, errors, and over TLS."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import harness
import llama_server
import router

OPENAI = harness.SOURCE / "build/openai-client"
KEY = "sk-burthen-test"
ARGS = "-c 512 -np 1 -t 2"

checks = harness.Checks()

# Runs apart: the client's packages are not this interpreter's. What it prints is JSON.
OPENAI_SCRIPT = """
import json, sys
import openai

said = {}
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key=sys.argv[2], max_retries=0)
said["models"] = [model.id for model in client.models.list()]
messages = [{"role": "user", "content": "Say a word."}]
answer = client.chat.completions.create(model="smol", messages=messages, max_tokens=6, temperature=0)
said["chat"] = answer.choices[0].message.content
said["tokens"] = answer.usage.completion_tokens
pieces = client.chat.completions.create(model="smol", messages=messages, max_tokens=6, temperature=0, stream=True)
said["stream"] = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
said["completion"] = client.completions.create(model="smol", prompt="Once upon", max_tokens=4, temperature=0).choices[0].text
for name, call in {
    "not_found": lambda: client.chat.completions.create(model="nobody", messages=messages),
    "too_long": lambda: client.chat.completions.create(model="smol", messages=[{"role": "user", "content": "word " * 2000}]),
    "key": lambda: openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="wrong", max_retries=0).models.list(),
}.items():
    try:
        call()
        said[name] = None
    except openai.APIStatusError as why:
        said[name] = [type(why).__name__, why.status_code, why.code]
early = client.chat.completions.create(model="smol", messages=messages, max_tokens=400, stream=True)
next(iter(early))
early.close()
said["after"] = client.chat.completions.create(model="smol", messages=messages, max_tokens=2).choices[0].finish_reason
print(json.dumps(said))
"""


def check_openai(serve):
    if not OPENAI.exists():
        return False
    result = subprocess.run([sys.executable, "-c", OPENAI_SCRIPT, f"http://127.0.0.1:{serve.port}", KEY],
                            capture_output=True, timeout=300, env=os.environ | {"PYTHONPATH": str(OPENAI)})
    if not checks.check(result.returncode == 0, f"the client ran: {result.stderr.decode()[-1500:]}"):
        return True
    said = json.loads(result.stdout)
    checks.check(said["models"] == ["smol"], f"models: {said['models']}")
    checks.check(said["chat"] and said["chat"] == said["stream"], f"whole and streamed are equal: {said}")
    checks.check(said["tokens"] == 6 and said["completion"], f"answers: {said}")
    checks.check(said["not_found"] == ["NotFoundError", 404, "model_not_found"], f"unknown model: {said['not_found']}")
    checks.check(said["too_long"] and said["too_long"][:2] == ["BadRequestError", 400], f"too long: {said['too_long']}")
    checks.check(said["key"] and said["key"][:2] == ["AuthenticationError", 401], f"wrong key: {said['key']}")
    checks.check(said["after"] in ("length", "stop"), f"an answer that was left does not stop the next: {said['after']}")
    return True


def curl(*args, timeout=300):
    return subprocess.run(["curl", "-sS", *map(str, args)], capture_output=True, timeout=timeout)


def check_curl(base, *more):
    body = json.dumps({"model": "smol", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})
    result = curl(f"{base}/v1/chat/completions", "-H", f"Authorization: Bearer {KEY}", "-d", body, *more)
    checks.check(b"choices" in result.stdout, f"curl: {result.stdout[:300]} {result.stderr}")
    stream = json.dumps(json.loads(body) | {"stream": True})
    result = curl("-N", f"{base}/v1/chat/completions", "-H", f"x-api-key: {KEY}", "-d", stream, *more)
    checks.check(result.stdout.count(b"data: ") > 4 and b"[DONE]" in result.stdout, f"stream: {result.stdout[-300:]}")
    result = curl("-I", f"{base}/health", *more)
    checks.check(result.stdout.startswith(b"HTTP/1.1 200"), f"HEAD without a key: {result.stdout}")
    result = curl(f"{base}/v1/models", "-u", f"anybody:{KEY}", *more)
    checks.check(b'"smol"' in result.stdout, f"Basic: {result.stdout[:200]}")
    result = curl("-o", "/dev/null", "-w", "%{http_code}", f"{base}/v1/models", *more)
    checks.check(result.stdout == b"401", f"no key: {result.stdout}")


def make_certificate(folder):
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                           "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=localhost",
                           "-addext", "subjectAltName=IP:127.0.0.1"], capture_output=True)
    return made.returncode == 0


def config():
    return (f"api_keys: [{KEY}]\nmodels:\n  smol: {{model: {harness.SMOLLM2}, args: \"{ARGS}\"}}\n")


def main():
    harness.require(harness.SMOLLM2, llama_server.PROGRAM)
    missing = [name for name in ("curl", "openssl") if not shutil.which(name)]
    with router.Router(config()) as serve:
        serve.headers = {"Authorization": f"Bearer {KEY}"}
        if not checks.check(serve.works, f"it starts: {serve.log()[-800:]}"):
            checks.end()
        if not check_openai(serve):
            missing.append("OpenAI's client")
        if "curl" not in missing:
            check_curl(f"http://127.0.0.1:{serve.port}")
    if not missing or missing == ["OpenAI's client"]:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            checks.check(make_certificate(folder), "a certificate can be made")
            with router.Router(config(), "--tls-cert-file", folder / "cert.pem", "--tls-key-file", folder / "key.pem") as serve:
                checks.check(serve.works, f"it starts with TLS: {serve.log()[-800:]}")
                check_curl(f"https://127.0.0.1:{serve.port}", "--cacert", folder / "cert.pem")
    if missing and not checks.failed:
        harness.skip(", ".join(missing) + " not there")
    checks.end()


main()
