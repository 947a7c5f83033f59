"""What no client library sends: statuses, keys, limits, load and the end."""

import json
import signal
import threading

import openai
import pytest

from conftest import Server

CAPITAL = [{"role": "user", "content": "What is the capital of Peru?"}]
CHAT = "/v1/chat/completions"


def test_health_and_version(server):
    for path in ("/health", "/ready"):
        assert server.raw("GET", path)[0] == 200, path
    status, _, body = server.raw("GET", "/version")
    assert status == 200 and json.loads(body)["version"]


def test_request_id_is_echoed(server, model):
    body = {"model": model, "messages": CAPITAL, "max_tokens": 1}
    _, headers, _ = server.raw("POST", CHAT, body, {"x-request-id": "mine-1"})
    assert headers["x-request-id"] == "mine-1"
    _, headers, _ = server.raw("POST", CHAT, body)
    assert headers["x-request-id"]


def test_tokenize_round_trip(server, model):
    text = "Héllo wörld, 12:15 <think>"
    status, _, body = server.raw("POST", "/tokenize", {"model": model, "prompt": text})
    tokens = json.loads(body)["tokens"]
    assert status == 200 and json.loads(body)["count"] == len(tokens)
    status, _, body = server.raw("POST", "/detokenize", {"model": model, "tokens": tokens})
    assert status == 200 and json.loads(body)["prompt"] == text


BAD = [
    ("POST", CHAT, b"{", 400),
    ("POST", CHAT, b"", 400),
    ("POST", CHAT, b"[]", 400),
    ("POST", CHAT, b'{"messages": "\xff"}', 400),
    ("POST", CHAT, b'{"model": "\\ud800"}', 400),
    ("GET", CHAT, None, 405),
    ("POST", "/v1/models", b"{}", 405),
    ("GET", "/v1/nothing", None, 404),
    ("POST", "/detokenize", b'{"tokens": [99999999]}', 400),
    ("POST", CHAT, b"[" * 100_000, 400),
]


@pytest.mark.parametrize("method,path,body,wanted", BAD, ids=range(len(BAD)))
def test_bad_request(server, method, path, body, wanted):
    status, headers, answer = server.raw(method, path, body)
    assert status == wanted, answer
    error = json.loads(answer)["error"]
    assert error["message"] and error["type"]


def test_huge_body_is_413(server):
    body = b'{"messages": "' + b"x" * (80 << 20) + b'"}'
    try:
        status, _, answer = server.raw("POST", CHAT, body)
    except (ConnectionError, OSError):
        # The server may close before it was sent everything; it must still be there.
        status = 413
    assert status == 413
    assert server.raw("GET", "/health")[0] == 200


def test_stream_ends_with_done(server, model):
    body = {"model": model, "messages": CAPITAL, "stream": True, "max_tokens": 5}
    status, headers, answer = server.raw("POST", CHAT, body)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    events = [line for line in answer.decode().split("\n\n") if line]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"


def test_api_key():
    keyed = Server("--api-key", "right")
    try:
        with pytest.raises(openai.AuthenticationError):
            keyed.openai("wrong").models.list()
        status, _, answer = keyed.raw("GET", "/v1/models")
        assert status == 401 and json.loads(answer)["error"]["message"]
        assert keyed.raw("GET", "/health")[0] == 200, "probes carry no key"
        assert keyed.openai("right").models.list().data
        assert keyed.anthropic("right").models.list().data
        assert keyed.anthropic("right").messages.create(
            model=keyed.openai("right").models.list().data[0].id,
            messages=CAPITAL,
            max_tokens=1,
        )
    finally:
        keyed.stop()


def endless(server, errors):
    client = server.openai()
    model = client.models.list().data[0].id
    try:
        stream = client.chat.completions.create(
            model=model,
            messages=CAPITAL,
            stream=True,
            max_tokens=1500,
            extra_body={"ignore_eos": True},
        )
        for _ in stream:
            pass
    except openai.APIError as error:
        errors.append(error)


def test_full_queue_is_429():
    small = Server("--max-num-seqs", "1", "--max-waiting-requests", "1", "--grace-seconds", "0")
    try:
        errors = []
        threads = [threading.Thread(target=endless, args=(small, errors)) for _ in range(2)]
        for thread in threads:
            thread.start()
        small.wait_for(
            lambda: small.metric("vllm:num_requests_running") == 1
            and small.metric("vllm:num_requests_waiting") == 1,
            "one runs, one waits",
        )
        model = small.openai().models.list().data[0].id
        body = {"model": model, "messages": CAPITAL}
        status, headers, answer = small.raw("POST", CHAT, body)
        assert status == 429, answer
        assert int(headers["retry-after"]) > 0
        with pytest.raises(openai.RateLimitError):
            small.openai().chat.completions.create(model=model, messages=CAPITAL)
    finally:
        small.process.send_signal(signal.SIGTERM)
        small.process.wait(timeout=60)
        for thread in threads:
            thread.join(timeout=60)
    # Streams that a shutdown cut off say so, rather than just end.
    assert len(errors) == 2, errors


def test_sigterm_lets_answers_finish():
    draining = Server("--grace-seconds", "60")
    client = draining.openai()
    model = client.models.list().data[0].id
    stream = client.chat.completions.create(
        model=model,
        messages=CAPITAL,
        stream=True,
        max_tokens=300,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    draining.process.send_signal(signal.SIGTERM)
    finish = [choice.finish_reason for chunk in stream for choice in chunk.choices][-1]
    assert finish == "length"
    assert draining.process.wait(timeout=60) == 0


def test_clamped_sampling_is_named(server, model):
    body = {"model": model, "messages": CAPITAL, "max_tokens": 1, "temperature": 1.5}
    status, _, answer = server.raw("POST", CHAT, body)
    assert status == 200
    answer = json.loads(answer)
    for warning in answer.get("warnings", []):
        assert warning["field"] and "asked" in warning and "used" in warning
