"""The embedded model's battery through the HTTP API, greedily, against its recorded score.

usage: battery.py [--weights f32|q8]... [--battery FILE] [--recorded FILE] [--limit N]

Judges as engine/package/embedded/train/eval.py does, on what a client sees instead of on raw text:
  well-formed   the answer parses: reasoning, content or calls, and an end by the model itself
  schema-valid  well-formed, and every call is valid for the tools that were offered
  exact         the right calls in any order, or literally the right sentence
Without --weights, f32 is run and must be within 1 % of the record, then q8 is stated beside it.
"""

import argparse
import json
import pathlib
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import openai

from conftest import BATTERY, Server

RECORDED = BATTERY.parent / "eval.txt"
# Errors of a call that is whole and readable, but not valid for its tools.
READABLE = {"unknown_tool", "bad_value", "malformed_json", "arguments_not_object"}
JSON_TYPES = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "string": str,
}
COLUMNS = ("well-formed", "schema-valid", "exact")


def as_api(messages):
    """Messages of the battery with what the API wants besides: ids of calls, arguments as text."""
    out, open_ids = [], []
    for message in messages:
        message = dict(message)
        if message.get("tool_calls"):
            calls = []
            for call in message["tool_calls"]:
                function = dict(call["function"])
                if not isinstance(function["arguments"], str):
                    function["arguments"] = json.dumps(function["arguments"])
                open_ids.append(f"call_{len(out)}_{len(calls)}")
                calls.append({"id": open_ids[-1], "type": "function", "function": function})
            message["tool_calls"] = calls
        if message["role"] == "tool":
            message["tool_call_id"] = open_ids.pop(0)
        out.append(message)
    return out


def ask(client, model, row):
    """What the model answered: well-formed, calls, content."""
    kwargs = {"enable_thinking": row["enable_thinking"]}
    if "reasoning_effort" in row:
        kwargs["reasoning_effort"] = row["reasoning_effort"]
    try:
        answer = client.chat.completions.create(
            model=model,
            messages=as_api(row["messages"]),
            tools=row.get("tools") or openai.NOT_GIVEN,
            temperature=0,
            max_tokens=200,
            extra_body={"chat_template_kwargs": kwargs},
        )
    except openai.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        if body.get("code") in READABLE:
            return {"well": True, "valid": False, "calls": None, "content": None}
        if error.status_code in (400, 401, 404, 429):
            raise
        return {"well": False, "valid": False, "calls": None, "content": None}
    choice = answer.choices[0]
    message = choice.message
    calls = [
        {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
        for call in message.tool_calls or []
    ]
    ended = choice.finish_reason in ("stop", "tool_calls")
    well = ended and bool(calls or message.content)
    return {
        "well": well,
        "valid": well and all(is_valid(call, row) for call in calls),
        "calls": calls,
        "content": message.content or "",
    }


def is_valid(call, row):
    for tool in row.get("tools", []):
        function = tool["function"]
        if function["name"] != call["name"]:
            continue
        schema = function["parameters"]
        properties = schema.get("properties", {})
        for key, value in call["arguments"].items():
            if key not in properties:
                return False
            wanted = properties[key].get("type", "string")
            if not isinstance(value, JSON_TYPES[wanted]):
                return False
            if "enum" in properties[key] and value not in properties[key]["enum"]:
                return False
        return all(key in call["arguments"] for key in schema.get("required", []))
    return False


def is_exact(answer, row):
    if not answer["well"] or answer["calls"] is None:
        return False
    expected = row["expected"]
    if "calls" in expected:
        key = lambda call: json.dumps(call, sort_keys=True)
        return sorted(map(key, answer["calls"])) == sorted(map(key, expected["calls"]))
    return not answer["calls"] and answer["content"] == expected["answer"]


def run(weights, rows):
    server = Server("--weights", weights, "--max-num-seqs", "32", "--max-waiting-requests", "1000")
    try:
        client = server.openai()
        model = client.models.list().data[0].id
        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda row: ask(client, model, row), rows))
    finally:
        server.stop()
    table = defaultdict(lambda: [0, 0, 0, 0])
    for row, answer in zip(rows, answers):
        groups = ["ALL", row["kind"] + (" (unseen tools)" if row["unseen_tools"] else "")]
        groups.append("calls" if "calls" in row["expected"] else "answers")
        if row["unseen_tools"]:
            groups.append("unseen tools")
        for group in groups:
            marks = (1, answer["well"], answer["valid"], is_exact(answer, row))
            table[group] = [a + int(b) for a, b in zip(table[group], marks)]
    return {
        group: (counts[0], *(count / counts[0] for count in counts[1:]))
        for group, counts in table.items()
    }


def recorded(path):
    """The first table of a record whose heading is `greedy`."""
    scores = {}
    lines = iter(path.read_text().splitlines())
    for line in lines:
        if line.strip() == "greedy":
            next(lines)
            for line in lines:
                fields = line.rsplit(None, 4)
                if len(fields) != 5:
                    return scores
                scores[fields[0]] = (int(fields[1]), *map(float, fields[2:]))
            return scores
    sys.exit(f"{path}: no table under a line `greedy`")


def show(title, scores, record):
    print(f"\n{title}\n{'group':26}{'n':>5}" + "".join(f"{name:>22}" for name in COLUMNS))
    for group, (count, *shares) in scores.items():
        cells = []
        for idx, share in enumerate(shares):
            then = record.get(group)
            was = f"(was {then[idx + 1]:.3f})" if then and then[0] == count else ""
            cells.append(f"{share:8.3f} {was:13}")
        print(f"{group:26}{count:5}" + "".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", action="append", choices=["f32", "q8"])
    parser.add_argument("--battery", type=pathlib.Path, default=BATTERY)
    parser.add_argument("--recorded", type=pathlib.Path, default=RECORDED)
    parser.add_argument("--limit", type=int)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.battery.read_text().splitlines()][: args.limit]
    assert rows, f"{args.battery} is empty"
    record = recorded(args.recorded)
    off = []
    for weights in args.weights or ["f32", "q8"]:
        scores = run(weights, rows)
        show(f"{weights}, greedy, {len(rows)} prompts over HTTP", scores, record)
        if weights == "f32" and record["ALL"][0] == len(rows):
            for idx, name in enumerate(COLUMNS):
                now, then = scores["ALL"][idx + 1], record["ALL"][idx + 1]
                if abs(now - then) > 0.0101:
                    off.append(f"{name} is {now:.3f}, recorded {then:.3f}")
    if off:
        sys.exit("f32 is not within 1 % of the record: " + "; ".join(off))


if __name__ == "__main__":
    main()
