"""The official Anthropic client against the server."""

import anthropic
import pytest

CAPITAL = [{"role": "user", "content": "What is the capital of Peru?"}]
# The client has no argument for it any more; servers still take the field.
GREEDY = {"temperature": 0}


def texts(message, kind="text"):
    field = {"text": "text", "thinking": "thinking"}[kind]
    return "".join(getattr(block, field) for block in message.content if block.type == kind)


def prompt_tokens(usage):
    # Tokens found in the prefix cache stand beside the others.
    return usage.input_tokens + usage.cache_read_input_tokens


def test_plain(claude, model):
    message = claude.messages.create(
        model=model, messages=CAPITAL, max_tokens=200, extra_body=GREEDY
    )
    assert message.type == "message" and message.role == "assistant"
    assert message.id.startswith("msg_")
    assert message.stop_reason == "end_turn"
    assert "Lima" in texts(message)
    assert prompt_tokens(message.usage) > 0 and message.usage.output_tokens > 0


def test_streamed_equals_plain(claude, model):
    options = dict(model=model, messages=CAPITAL, max_tokens=200, extra_body=GREEDY)
    plain = claude.messages.create(**options)
    with claude.messages.stream(**options) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_message()
    assert texts(final) == texts(plain)
    assert final.stop_reason == plain.stop_reason
    assert final.usage.output_tokens == plain.usage.output_tokens
    assert events[0] == "message_start" and events[-1] == "message_stop"
    assert events.count("content_block_start") == events.count("content_block_stop") > 0


def test_thinking(claude, model):
    message = claude.messages.create(
        model=model,
        messages=CAPITAL,
        max_tokens=2000,
        extra_body=GREEDY,
        thinking={"type": "enabled", "budget_tokens": 1024},
    )
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert texts(message, "thinking")
    off = claude.messages.create(
        model=model, messages=CAPITAL, max_tokens=200, extra_body=GREEDY, thinking={"type": "disabled"}
    )
    assert [block.type for block in off.content] == ["text"]


def as_anthropic(tools):
    return [
        {
            "name": tool["function"]["name"],
            "description": tool["function"].get("description", ""),
            "input_schema": tool["function"]["parameters"],
        }
        for tool in tools
    ]


def test_tool_use_and_result(claude, model, calling):
    options = dict(
        model=model, tools=as_anthropic(calling["tools"]), max_tokens=300, extra_body=GREEDY
    )
    message = claude.messages.create(messages=calling["messages"], **options)
    assert message.stop_reason == "tool_use"
    use = next(block for block in message.content if block.type == "tool_use")
    assert use.name in {tool["function"]["name"] for tool in calling["tools"]}
    assert isinstance(use.input, dict) and use.id
    with claude.messages.stream(messages=calling["messages"], **options) as stream:
        final = stream.get_final_message()
    streamed = next(block for block in final.content if block.type == "tool_use")
    assert (streamed.name, streamed.input) == (use.name, use.input)
    messages = calling["messages"] + [
        {"role": "assistant", "content": [block.model_dump() for block in message.content]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": use.id, "content": '{"status":"ok"}'}
            ],
        },
    ]
    answer = claude.messages.create(messages=messages, **options)
    assert answer.stop_reason in ("end_turn", "tool_use")
    assert prompt_tokens(answer.usage) > prompt_tokens(message.usage)


def test_stop_sequence(claude, model):
    options = dict(model=model, messages=CAPITAL, max_tokens=200, extra_body=GREEDY)
    whole = texts(claude.messages.create(**options))
    stop = whole[len(whole) // 2 :][:4]
    cut = claude.messages.create(**options, stop_sequences=[stop])
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == stop
    assert texts(cut) == whole[: whole.index(stop)]


def test_max_tokens(claude, model):
    message = claude.messages.create(model=model, messages=CAPITAL, max_tokens=3, extra_body=GREEDY)
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 3


def test_system_and_metadata(claude, model):
    message = claude.messages.create(
        model=model,
        system="Answer briefly.",
        messages=CAPITAL,
        max_tokens=50,
        metadata={"user_id": "someone"},
    )
    bare = claude.messages.create(model=model, messages=CAPITAL, max_tokens=1)
    assert prompt_tokens(message.usage) > prompt_tokens(bare.usage)


def test_count_tokens(claude, model, calling):
    tools = as_anthropic(calling["tools"])
    counted = claude.messages.count_tokens(
        model=model, messages=calling["messages"], tools=tools
    ).input_tokens
    message = claude.messages.create(
        model=model, messages=calling["messages"], tools=tools, max_tokens=1
    )
    assert counted == prompt_tokens(message.usage)


def test_cancelled_mid_stream(server, claude, model):
    with claude.messages.stream(
        model=model, messages=CAPITAL, max_tokens=1500, extra_body={"temperature": 1}
    ) as stream:
        next(iter(stream))
    server.wait_for(
        lambda: server.metric("vllm:num_requests_running") == 0
        and server.metric("vllm:kv_cache_usage_perc") == 0,
        "blocks are free after the client went away",
    )


BAD = [
    ("max_tokens", dict(max_tokens=0)),
    ("temperature", dict(extra_body={"temperature": -1})),
    ("messages", dict(messages=[])),
    ("messages", dict(messages=[{"role": "wizard", "content": "x"}])),
    ("tools", dict(tools=[{"name": "f"}])),
    ("tool_choice", dict(tool_choice={"type": "tool", "name": "g"}, tools=[{"name": "f", "input_schema": {"type": "object"}}])),
    ("tools", dict(tool_choice={"type": "any"})),
    ("output_config", dict(extra_body={"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}})),
]


@pytest.mark.parametrize("param,fields", BAD, ids=[f"{p}-{i}" for i, (p, _) in enumerate(BAD)])
def test_bad_request_names_the_field(claude, model, param, fields):
    options = dict(model=model, messages=CAPITAL, max_tokens=4)
    options.update(fields)
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(**options)
    body = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert param in body["error"]["message"], body


def test_max_tokens_is_needed(server, model):
    status, _, body = server.raw("POST", "/v1/messages", {"model": model, "messages": CAPITAL})
    assert status == 400 and b"max_tokens" in body


def test_unknown_model_is_404(claude):
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="no-such-model", messages=CAPITAL, max_tokens=1)
