"""The official OpenAI client against the server."""

import json

import openai
import pytest

CAPITAL = [{"role": "user", "content": "What is the capital of Peru?"}]


def test_models(client, model):
    listed = client.models.list().data
    assert [entry.id for entry in listed] == [model]
    assert client.models.retrieve(model).id == model


def test_plain(client, model):
    answer = client.chat.completions.create(model=model, messages=CAPITAL, temperature=0)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == model
    choice = answer.choices[0]
    assert choice.finish_reason == "stop"
    assert choice.message.role == "assistant"
    assert "Lima" in choice.message.content
    assert "<" not in choice.message.content, "tags never show"
    usage = answer.usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_reasoning(client, model):
    answer = client.chat.completions.create(model=model, messages=CAPITAL, temperature=0)
    message = answer.choices[0].message
    assert message.reasoning_content
    assert message.reasoning == message.reasoning_content
    reasoned = answer.usage.completion_tokens_details.reasoning_tokens
    assert 0 < reasoned < answer.usage.completion_tokens
    off = client.chat.completions.create(
        model=model,
        messages=CAPITAL,
        temperature=0,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    assert not getattr(off.choices[0].message, "reasoning_content", None)
    assert off.usage.completion_tokens < answer.usage.completion_tokens


def gather(stream):
    """Content, reasoning, calls, finish and usage of a stream."""
    out = {"content": "", "reasoning": "", "calls": {}, "finish": None, "usage": None, "num": 0}
    for chunk in stream:
        out["num"] += 1
        assert chunk.object == "chat.completion.chunk"
        if chunk.usage is not None:
            out["usage"] = chunk.usage
        for choice in chunk.choices:
            assert out["finish"] is None, "nothing comes after the finish"
            delta = choice.delta
            out["content"] += delta.content or ""
            out["reasoning"] += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                name, arguments = out["calls"].get(call.index, ("", ""))
                name += call.function.name or ""
                arguments += call.function.arguments or ""
                out["calls"][call.index] = (name, arguments)
            out["finish"] = choice.finish_reason or out["finish"]
    return out


def test_streamed_equals_plain(client, model):
    options = dict(model=model, messages=CAPITAL, temperature=1, seed=11)
    plain = client.chat.completions.create(**options)
    stream = client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    )
    out = gather(stream)
    message = plain.choices[0].message
    assert out["content"] == (message.content or "")
    assert out["reasoning"] == (message.reasoning_content or "")
    assert out["finish"] == plain.choices[0].finish_reason
    assert out["usage"].model_dump() == plain.usage.model_dump()
    assert out["num"] > 5, "it came in pieces"


def test_no_usage_chunk_unless_asked(client, model):
    stream = client.chat.completions.create(model=model, messages=CAPITAL, stream=True)
    assert gather(stream)["usage"] is None


def test_tool_call_and_result(client, model, calling):
    options = dict(model=model, tools=calling["tools"], temperature=0, max_tokens=200)
    answer = client.chat.completions.create(messages=calling["messages"], **options)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    assert call.type == "function" and call.id
    offered = {tool["function"]["name"] for tool in calling["tools"]}
    assert call.function.name in offered
    arguments = json.loads(call.function.arguments)
    assert isinstance(arguments, dict)
    streamed = gather(
        client.chat.completions.create(messages=calling["messages"], stream=True, **options)
    )
    assert streamed["finish"] == "tool_calls"
    assert streamed["calls"][0][0] == call.function.name
    assert json.loads(streamed["calls"][0][1]) == arguments
    # The result goes back as the client's own objects.
    messages = calling["messages"] + [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": '{"status":"ok"}'},
    ]
    final = client.chat.completions.create(messages=messages, **options)
    assert final.choices[0].finish_reason in ("stop", "tool_calls")
    assert final.usage.prompt_tokens > answer.usage.prompt_tokens
    assert final.choices[0].message.content or final.choices[0].message.tool_calls


def test_tools_with_tool_choice_none(client, model, calling):
    answer = client.chat.completions.create(
        model=model,
        messages=calling["messages"],
        tools=calling["tools"],
        tool_choice="none",
        temperature=0,
        max_tokens=60,
    )
    assert not answer.choices[0].message.tool_calls


def test_stop(client, model):
    whole = client.chat.completions.create(model=model, messages=CAPITAL, temperature=0)
    content = whole.choices[0].message.content
    stop = content[len(content) // 2 :][:4]
    cut = client.chat.completions.create(
        model=model, messages=CAPITAL, temperature=0, stop=[stop, "never to be seen"]
    )
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == content[: content.index(stop)]
    streamed = gather(
        client.chat.completions.create(
            model=model, messages=CAPITAL, temperature=0, stop=stop, stream=True
        )
    )
    assert streamed["content"] == content[: content.index(stop)]


def test_max_tokens(client, model):
    answer = client.chat.completions.create(
        model=model, messages=CAPITAL, temperature=0, max_tokens=3
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3
    # The budget ended inside reasoning, and the answer says so.
    assert answer.choices[0].message.content is None
    assert answer.usage.completion_tokens_details.reasoning_tokens == 3
    newer = client.chat.completions.create(
        model=model, messages=CAPITAL, temperature=0, max_completion_tokens=3
    )
    assert newer.choices[0].message == answer.choices[0].message


def text_of(answer, idx=0):
    message = answer.choices[idx].message
    return (message.reasoning_content or "") + "|" + (message.content or "")


def test_seed(client, model):
    def ask(seed):
        return text_of(
            client.chat.completions.create(
                model=model, messages=CAPITAL, temperature=2, max_tokens=30, seed=seed
            )
        )

    first = [ask(seed) for seed in range(5)]
    assert first == [ask(seed) for seed in range(5)]
    assert len(set(first)) > 1, "other seeds, other answers"


def test_drawn_seed_is_returned(client, model):
    options = dict(model=model, messages=CAPITAL, temperature=2, max_tokens=30)
    answer = client.chat.completions.create(**options)
    assert isinstance(answer.seed, int)
    again = client.chat.completions.create(**options, seed=answer.seed)
    assert text_of(again) == text_of(answer)


def test_logprobs(client, model):
    answer = client.chat.completions.create(
        model=model, messages=CAPITAL, temperature=0, max_tokens=8, logprobs=True, top_logprobs=3
    )
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 8
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.logprob <= 0
        assert token.logprob == token.top_logprobs[0].logprob, "greedy takes the most likely"
        assert token.bytes == token.top_logprobs[0].bytes
        likely = [entry.logprob for entry in token.top_logprobs]
        assert likely == sorted(likely, reverse=True)
    plain = client.chat.completions.create(
        model=model, messages=CAPITAL, temperature=0, max_tokens=8
    )
    assert plain.choices[0].logprobs is None
    assert text_of(plain) == text_of(answer)


def test_two_choices(client, model):
    answer = client.chat.completions.create(
        model=model, messages=CAPITAL, temperature=2, max_tokens=20, seed=5, n=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert text_of(answer, 0) != text_of(answer, 1)
    one = client.chat.completions.create(
        model=model, messages=CAPITAL, temperature=2, max_tokens=20, seed=5
    )
    assert text_of(one) == text_of(answer, 0), "a choice does not know of the others"


def test_cancelled_mid_stream(server, client, model):
    before = server.metric("vllm:generation_tokens_total")
    stream = client.chat.completions.create(
        model=model,
        messages=CAPITAL,
        stream=True,
        max_tokens=1500,
        temperature=1,
        extra_body={"ignore_eos": True},
    )
    for _, _ in zip(range(4), stream):
        pass
    assert server.metric("vllm:num_requests_running") == 1
    stream.close()
    server.wait_for(
        lambda: server.metric("vllm:num_requests_running") == 0
        and server.metric("vllm:kv_cache_usage_perc") == 0,
        "blocks are free after the client went away",
    )
    assert server.metric("vllm:generation_tokens_total") - before < 1500


def test_sampling_fields_are_taken(client, model):
    answer = client.chat.completions.create(
        model=model,
        messages=CAPITAL,
        temperature=0.7,
        top_p=0.9,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        logit_bias={"5": -100},
        seed=3,
        max_tokens=10,
        extra_body={"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1},
    )
    assert answer.usage.completion_tokens <= 10


def test_bias_bans_a_token(client, model):
    options = dict(model=model, messages=CAPITAL, temperature=0, max_tokens=1, logprobs=True)
    free = client.chat.completions.create(**options)
    first = free.choices[0].logprobs.content[0]
    ids = json.loads(
        json.dumps(client.post("../tokenize", body={"model": model, "prompt": first.token}, cast_to=object))
    )["tokens"]
    banned = client.chat.completions.create(**options, logit_bias={str(ids[0]): -100})
    assert banned.choices[0].logprobs.content[0].token != first.token


def test_completions(client, model):
    options = dict(model=model, prompt="The capital of Peru is", temperature=0, max_tokens=8)
    plain = client.completions.create(**options)
    assert plain.id.startswith("cmpl-")
    assert plain.choices[0].text
    assert plain.usage.completion_tokens <= 8
    pieces = [
        chunk.choices[0].text
        for chunk in client.completions.create(**options, stream=True)
        if chunk.choices
    ]
    assert "".join(pieces) == plain.choices[0].text
    echoed = client.completions.create(**options, echo=True)
    assert echoed.choices[0].text == "The capital of Peru is" + plain.choices[0].text


def test_same_answer_in_company(client, model, battery):
    """Batch mates change nothing: the same requests alone, and all at once."""
    from concurrent.futures import ThreadPoolExecutor

    rows = battery[:12]

    def ask(row):
        answer = client.chat.completions.create(
            model=model,
            messages=row["messages"],
            tools=row.get("tools") or openai.NOT_GIVEN,
            temperature=1,
            seed=row["id"],
            max_tokens=60,
        )
        message = answer.choices[0].message
        calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
        return message.content, message.reasoning_content, calls

    def try_ask(row):
        # A call of a tiny model at temperature 1 may be malformed: then the error must be the same.
        try:
            return ask(row)
        except openai.APIStatusError as error:
            return error.status_code, str(error.body.get("code")), str(error.body.get("message"))

    alone = [try_ask(row) for row in rows]
    with ThreadPoolExecutor(len(rows)) as pool:
        together = list(pool.map(try_ask, rows))
    assert together == alone


BAD = [
    ("temperature", dict(temperature=-1)),
    ("temperature", dict(temperature="hot")),
    ("top_p", dict(top_p=1.5)),
    ("max_tokens", dict(max_tokens=0)),
    ("n", dict(n=0)),
    ("n", dict(n=10_000)),
    ("top_logprobs", dict(logprobs=True, top_logprobs=10_000)),
    ("top_logprobs", dict(top_logprobs=2)),
    ("stop", dict(stop=["x"] * 1000)),
    ("logit_bias", dict(logit_bias={"99999999": 1})),
    ("frequency_penalty", dict(frequency_penalty=9)),
    ("messages", dict(messages=[])),
    ("messages", dict(messages=[{"role": "wizard", "content": "x"}])),
    ("messages", dict(messages="hello")),
    ("tools", dict(tools=[{"type": "function"}])),
    ("tools", dict(tool_choice="required")),
    ("tool_choice", dict(tool_choice="perhaps", tools=[{"type": "function", "function": {"name": "f"}}])),
    ("tool_choice", dict(tool_choice={"type": "function", "function": {"name": "g"}}, tools=[{"type": "function", "function": {"name": "f"}}])),
    ("response_format", dict(response_format={"type": "poem"})),
    ("response_format", dict(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}})),
    ("guided_regex", dict(extra_body={"guided_regex": "("})),
    ("stream_options", dict(stream_options={"include_usage": True})),
    ("seed", dict(seed="seven")),
]


@pytest.mark.parametrize("param,fields", BAD, ids=[f"{p}-{i}" for i, (p, _) in enumerate(BAD)])
def test_bad_request_names_the_field(client, model, param, fields):
    options = dict(model=model, messages=CAPITAL, max_tokens=4)
    options.update(fields)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**options)
    body = caught.value.body
    assert param in (body.get("param") or ""), body
    assert param in body["message"] or "." in body["param"], body
    assert body["type"] and body["message"]


def test_prompt_too_long_gives_both_numbers(client, model):
    long = [{"role": "user", "content": "word " * 5000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=long)
    import re

    assert len(re.findall(r"\d+", caught.value.body["message"])) >= 2, caught.value.body


def test_unknown_model_is_404(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=CAPITAL)
    assert "no-such-model" in caught.value.body["message"]


def test_unknown_field_is_ignored_and_counted(server, client, model):
    client.chat.completions.create(
        model=model, messages=CAPITAL, max_tokens=1, extra_body={"surprise": 1}
    )
    status, _, body = server.raw("GET", "/metrics")
    assert status == 200
    assert any(
        line.startswith("lockstep_") and "unknown" in line for line in body.decode().splitlines()
    )
