# SPDX-License-Identifier: MIT
"""A client of a llama-server, or of anything that answers as one: questions, and answers as they come."""

import http.client
import json

ANSWER_S = 240


class Refused(AssertionError):
    """An answer that is no success, where one was needed."""


class Client:
    """host and port: where; headers: sent with every request."""

    host = "127.0.0.1"
    port = 0
    headers = {}

    def open(self, path, body=None, timeout_s=ANSWER_S, method=None, headers=None):
        """(connection, response): the caller reads and closes. body: an object, or bytes as they are."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {"Content-Type": "application/json"} | self.headers | (headers or {})
        connection.request(method or ("GET" if data is None else "POST"), path, data, all_headers)
        return connection, connection.getresponse()

    def request(self, path, body=None, timeout_s=ANSWER_S, **more):
        """(HTTP status, body as bytes), whatever the status; OSError or HTTPException where no answer came."""
        connection, response = self.open(path, body, timeout_s, **more)
        try:
            return response.status, response.read()
        finally:
            connection.close()

    def ask(self, path, body=None, timeout_s=ANSWER_S, **more):
        """The JSON of an answer that must be a success."""
        status, data = self.request(path, body, timeout_s, **more)
        if status != 200:
            raise Refused(f"{path}: {status}: {data.decode(errors='replace')[:600]}")
        return json.loads(data)

    def events(self, path, body, timeout_s=ANSWER_S):
        """The events of a streamed answer as JSON, as they come; an error's object is {"error": ...}."""
        connection, response = self.open(path, body | {"stream": True}, timeout_s)
        try:
            if response.status != 200:
                raise Refused(f"{path}: {response.status}: {response.read().decode(errors='replace')[:600]}")
            for line in response:
                name, _, data = line.decode().strip().partition(": ")
                if name in ("data", "error") and data != "[DONE]":
                    event = json.loads(data)
                    yield event if name == "data" else {"error": event}
        finally:
            connection.close()

    def stream(self, path, body, timeout_s=ANSWER_S):
        """All of them."""
        return list(self.events(path, body, timeout_s))
