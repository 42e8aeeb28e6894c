"""`--json-schema`: an answer that fits, one that is asked for again, and one that never fits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pegboard.cli.structured import RETRIES, Structured
from pegboard.errors import UsageError
from shells import SOON, Shell, call, fits, shell

__all__ = ["shell"]

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
GIVEN = json.dumps(SCHEMA)


def run(it: Shell, *args: str, code: int = 0) -> dict[str, Any]:
    done = it.run("-p", "count", "--output-format", "json", *args)
    assert done.returncode == code, done
    found = json.loads(done.stdout)
    fits("result", found)
    return found


def test_an_answer_that_fits(shell: Callable[..., Shell]) -> None:
    it = shell(call("Echo"), '{"n": 3}')
    found = run(it, "--json-schema", GIVEN)
    assert found["structured_output"] == {"n": 3} and found["result"] == '{"n": 3}' and found["num_turns"] == 2
    first, last = (body["messages"][0]["content"] for body in it.service.bodies)
    assert sum('"minimum": 1' in block["text"] for block in first) == 1 and first == last[: len(first)]


def test_a_wrong_answer_is_asked_for_again(shell: Callable[..., Shell]) -> None:
    it = shell("three", '{"n": 0}', '{"n": NaN}', '```json\n{"n": 2}\n```')
    found = run(it, "--json-schema", GIVEN)
    assert found["structured_output"] == {"n": 2} and len(it.service.requests) == 4 and it.refused == []
    said = [message["content"][0]["text"] for message in it.service.bodies[-1]["messages"] if message["role"] == "user"]
    assert "not JSON" in said[1] and "$.n: 0 is less than the minimum of 1" in said[2] and "NaN" in said[3]


def test_an_answer_that_never_fits(shell: Callable[..., Shell]) -> None:
    it = shell(*["no"] * (RETRIES + 1), "one too many")
    found = run(it, "--json-schema", GIVEN, code=1)
    assert found["subtype"] == "error_max_structured_output_retries" and found["is_error"]
    assert "structured_output" not in found and "not JSON" in found["errors"][1]
    assert len(it.service.requests) == RETRIES + 1


def test_the_turn_limit_comes_first(shell: Callable[..., Shell]) -> None:
    it = shell("no", "no")
    found = run(it, "--json-schema", GIVEN, "--max-turns", "1", code=1)
    assert found["subtype"] == "error_max_turns"


def test_a_file_and_a_value_that_is_no_object(shell: Callable[..., Shell]) -> None:
    it = shell("[1, 2]")
    (it.work / "schema.json").write_text('{"type": "array", "items": {"type": "integer"}}')
    assert run(it, "--json-schema", "schema.json")["structured_output"] == [1, 2]


def test_null_is_an_answer(shell: Callable[..., Shell]) -> None:
    it = shell("null")
    found = run(it, "--json-schema", '{"type": "null"}')
    assert "structured_output" in found and found["structured_output"] is None and found["subtype"] == "success"


def test_text_shows_the_answer_and_says_what_is_wrong(shell: Callable[..., Shell]) -> None:
    it = shell(*["no"] * (RETRIES + 1))
    done = it.run("-p", "count", "--json-schema", GIVEN)
    assert done.returncode == 1 and done.stdout == b"no\n" and b"does not fit the JSON schema" in done.stderr


@pytest.mark.parametrize("given", ["{", "missing.json", '{"type": "nothing"}', "[]"])
def test_what_is_no_schema_is_a_usage_error(shell: Callable[..., Shell], given: str) -> None:
    it = shell("x")
    done = it.run("-p", "go", "--json-schema", given)
    assert done.returncode == 2 and done.stdout == b"" and b"--json-schema" in done.stderr
    assert it.service.requests == []


def test_each_prompt_of_a_stream_has_its_own_answer(shell: Callable[..., Shell]) -> None:
    it = shell('{"n": 1}', "no", '{"n": 2}')
    lines = [{"type": "user", "message": {"role": "user", "content": text}} for text in ("a", "b")]
    given = "\n".join(map(json.dumps, lines)).encode()
    args = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--json-schema", GIVEN)
    process = it.start(*args, stdin=subprocess.PIPE)
    out, _ = process.communicate(given, timeout=SOON)
    results = [line for line in map(json.loads, out.splitlines()) if line["type"] == "result"]
    assert [line["structured_output"] for line in results] == [{"n": 1}, {"n": 2}] and process.returncode == 0


def test_nothing_is_fetched_for_a_schema() -> None:
    structured = Structured({"$ref": "http://127.0.0.1:9/schema.json"})
    assert structured._check("{}")[1][0].startswith("The schema cannot be applied")


def test_a_missing_validator_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(UsageError, match="jsonschema"):
        Structured(SCHEMA)
