"""Calls and answers that are held to a form, as the official clients ask for them and read them. Tokens are
drawn hot, so that it is the grammar that makes an answer what it is."""

import json
from typing import Literal

import openai
import pydantic
import pytest

WAKE = [{"role": "user", "content": "wake me tomorrow"}]
SEEDS = range(6)
# Hot, and with little room for reasoning that a hot model would not end.
HOT = {"temperature": 1.5, "max_tokens": 600}
FEW = {"reasoning": {"max_tokens": 24}}


class Alarm(pydantic.BaseModel):
    """Set an alarm."""

    model_config = pydantic.ConfigDict(extra="forbid")
    hour: int = pydantic.Field(ge=0, le=23)
    day: Literal["monday", "sunday"]
    loud: bool


SCHEMA = Alarm.model_json_schema()
TOOL = {"type": "function", "function": {"name": "set_alarm", "parameters": SCHEMA}}
STOP = {"type": "function", "function": {"name": "stop_alarm"}}


def check_calls(calls):
    """Whether all calls are what their tools say."""
    assert calls
    for call in calls:
        if call.function.name == "set_alarm":
            Alarm.model_validate_json(call.function.arguments, strict=True)
        else:
            assert (call.function.name, json.loads(call.function.arguments)) == ("stop_alarm", {})


CHOICES = {
    "required": dict(tool_choice="required"),
    "named": dict(tool_choice={"type": "function", "function": {"name": "set_alarm"}}),
    "allowed": dict(
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "set_alarm"}}],
            },
        }
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_calls(client, model, choice):
    for seed in SEEDS:
        options = dict(
            model=model,
            messages=WAKE,
            tools=[STOP, TOOL],
            parallel_tool_calls=False,
            seed=seed,
            extra_body=FEW,
            **HOT,
            **CHOICES[choice],
        )
        answer = client.chat.completions.create(**options).choices[0]
        assert answer.finish_reason == "tool_calls", answer
        check_calls(answer.message.tool_calls)
        if choice != "required":
            assert answer.message.tool_calls[0].function.name == "set_alarm"
        with client.chat.completions.stream(**options) as stream:
            final = stream.get_final_completion().choices[0]
        assert final.finish_reason == "tool_calls"
        assert [call.function.arguments for call in final.message.tool_calls] == [
            call.function.arguments for call in answer.message.tool_calls
        ]


def test_strict_calls_are_parsed_by_the_client(client, model):
    tool = openai.pydantic_function_tool(Alarm, name="set_alarm")
    assert tool["function"]["strict"] is True
    for seed in SEEDS:
        answer = client.chat.completions.parse(
            model=model,
            messages=WAKE,
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            seed=seed,
            extra_body=FEW,
            **HOT,
        )
        parsed = answer.choices[0].message.tool_calls[0].function.parsed_arguments
        assert isinstance(parsed, Alarm), answer


def test_an_answer_is_parsed_by_the_client(client, model):
    for seed in SEEDS:
        answer = client.chat.completions.parse(
            model=model, messages=WAKE, response_format=Alarm, seed=seed, extra_body=FEW, **HOT
        )
        assert isinstance(answer.choices[0].message.parsed, Alarm), answer


def test_response_formats(client, model):
    named = {"name": "alarm", "schema": SCHEMA}
    for seed in SEEDS:
        options = dict(model=model, messages=WAKE, seed=seed, **HOT)
        answer = client.chat.completions.create(
            response_format={"type": "json_schema", "json_schema": named}, extra_body=FEW, **options
        )
        Alarm.model_validate_json(answer.choices[0].message.content, strict=True)
        answer = client.completions.create(
            model=model,
            prompt="An alarm: ",
            seed=seed,
            extra_body={"structured_outputs": {"json": SCHEMA}},
            **HOT,
        )
        Alarm.model_validate_json(answer.choices[0].text, strict=True)
        answer = client.chat.completions.create(
            extra_body={**FEW, "structured_outputs": {"choice": ["yes", "no"]}}, **options
        )
        assert answer.choices[0].message.content in ("yes", "no")


def test_a_json_object(client, model):
    answer = client.chat.completions.create(
        model=model,
        messages=WAKE,
        temperature=0,
        max_tokens=400,
        response_format={"type": "json_object"},
        extra_body=FEW,
    ).choices[0]
    if answer.finish_reason == "stop":
        assert isinstance(json.loads(answer.message.content), dict)
    else:
        assert answer.message.content.lstrip().startswith("{")


ANTHROPIC_TOOLS = [
    {"name": "stop_alarm", "input_schema": {"type": "object", "additionalProperties": False}},
    {"name": "set_alarm", "input_schema": SCHEMA},
]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "set_alarm"}])
def test_tool_use(claude, model, choice):
    for seed in SEEDS:
        options = dict(
            model=model,
            messages=WAKE,
            tools=ANTHROPIC_TOOLS,
            tool_choice={**choice, "disable_parallel_tool_use": True},
            thinking={"type": "disabled"},
            max_tokens=600,
            extra_body={"temperature": 1.5, "seed": seed},
        )
        message = claude.messages.create(**options)
        uses = [block for block in message.content if block.type == "tool_use"]
        if message.stop_reason == "max_tokens":
            # It began to think by itself.
            assert not uses and message.content[0].type == "thinking"
            continue
        assert message.stop_reason == "tool_use" and len(uses) == 1, message
        if uses[0].name == "set_alarm":
            Alarm.model_validate(uses[0].input, strict=True)
        else:
            assert choice["type"] == "any" and uses[0].input == {}
        with claude.messages.stream(**options) as stream:
            final = stream.get_final_message()
        streamed = [block for block in final.content if block.type == "tool_use"]
        assert [use.input for use in streamed] == [use.input for use in uses]


def test_messages_output_format(claude, model):
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    ended = 0
    for seed in SEEDS:
        message = claude.messages.create(
            model=model,
            messages=WAKE,
            thinking={"type": "disabled"},
            max_tokens=600,
            extra_body={"temperature": 1, "seed": seed, "output_config": form},
        )
        if message.stop_reason == "end_turn":
            ended += 1
            text = "".join(block.text for block in message.content if block.type == "text")
            Alarm.model_validate_json(text, strict=True)
    assert ended > len(SEEDS) // 2
