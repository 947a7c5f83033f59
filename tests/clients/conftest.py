"""The program under test: started once on a port of its own choice, serving the embedded model."""

import json
import os
import pathlib
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import anthropic
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATTERY = ROOT / "engine/package/embedded/battery.jsonl"
API_KEY = "any-key"


class Server:
    """A running `lockstep serve`."""

    def __init__(self, *flags):
        command = [os.environ["LOCKSTEP_BIN"], "serve", "--port", "0", *flags]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.log = []
        found = re.compile(r"http://[\d.]+:\d+")
        self.url = None
        for line in self.process.stdout:
            match = found.search(line)
            if match:
                self.url = match.group()
                break
        if self.url is None:
            self.process.wait()
            raise RuntimeError(f"{command} did not start:\n{self.process.stderr.read()}")
        # Pipes that nobody reads would block the server once they are full.
        for pipe in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self.log.extend, args=(pipe,), daemon=True).start()

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=60)

    def openai(self, key=API_KEY):
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def anthropic(self, key=API_KEY):
        return anthropic.Anthropic(base_url=self.url, api_key=key, max_retries=0)

    def raw(self, method, path, body=None, headers=None):
        """Status, headers and body of a request, without any client in between."""
        headers = {"content-type": "application/json", **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def metric(self, name):
        """The sum of a metric over its labels."""
        status, _, body = self.raw("GET", "/metrics")
        assert status == 200
        values = [
            float(line.rsplit(" ", 1)[1])
            for line in body.decode().splitlines()
            if re.match(rf"{re.escape(name)}(\{{|\s)", line)
        ]
        assert values, f"no metric {name}"
        return sum(values)

    def wait_for(self, holds, what):
        """Waits for a condition; the bound is there to end a test that can't pass."""
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, f"never: {what}"
            time.sleep(0.01)


@pytest.fixture(scope="session")
def server():
    running = Server()
    yield running
    assert running.stop() == 0, "SIGTERM drains and ends with 0"


@pytest.fixture(scope="session")
def model(server):
    return server.openai().models.list().data[0].id


@pytest.fixture
def client(server):
    return server.openai()


@pytest.fixture
def claude(server):
    return server.anthropic()


@pytest.fixture(scope="session")
def battery():
    return [json.loads(line) for line in BATTERY.read_text().splitlines()]


@pytest.fixture(scope="session")
def calling(server, model, battery):
    """A conversation to which the model answers with a call, greedily."""
    client = server.openai()
    for row in (row for row in battery if row["kind"] == "call" and not row["unseen_tools"]):
        answer = client.chat.completions.create(
            model=model, messages=row["messages"], tools=row["tools"], temperature=0, max_tokens=200
        )
        calls = answer.choices[0].message.tool_calls
        if calls and calls[0].function.name == row["expected"]["calls"][0]["name"]:
            return row
    pytest.fail("the model called no tool in any row of the battery")
