"""The parts of the provider without a network: bodies, answers in every dialect, errors, abilities."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard.errors import BadRequest, Overloaded, ProviderError, RateLimited, TooLong, UsageError
from pegboard.provider import Abilities, Answer, BlockDone, Message, Request, TextDelta, ThinkingDelta, ToolSpec
from pegboard.testing.chat import as_messages, chunks_of, problems
from pegboard.testing.messages_events import answer_blocks, message_of
from pegboard_http.failure import Failure
from pegboard_openai_compatible.abilities import abilities_of
from pegboard_openai_compatible.answer import Assembly
from pegboard_openai_compatible.body import BELOW, EMPTY, FAILED, LEAST, Bodies
from pegboard_openai_compatible.failure import from_answer, from_chunk

quick = settings(max_examples=60, deadline=None)
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
ABLE = Abilities(window=1_000_000, max_output=9_000, images=True, thinking=True)
TOOLS = [ToolSpec("Read", "Reads.", {"type": "object", "properties": {}})]

words = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
inputs = st.dictionaries(words, words | st.integers() | st.none() | st.lists(words, max_size=2), max_size=3)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def request(messages: list[Message], **fields: Any) -> Request:
    common: dict[str, Any] = {"system": [text("s"), text("t")], "tools": TOOLS, "max_tokens": 50}
    return Request(model="m", messages=messages, **{**common, **fields})


def body_of(messages: list[Message], abilities: Abilities = ABLE, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Bodies().message(request(messages, **fields), abilities))
    assert problems(found) == []
    return found


def go(*more: Message) -> list[Message]:
    return [Message("user", [text("go")]), *more]


# -- bodies ----------------------------------------------------------------------------------------------------------


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """A conversation in the shapes that the loop makes."""
    messages = go()
    for turn in range(draw(st.integers(0, 4))):
        made = [text(said) for said in draw(st.lists(words, max_size=1))]
        ids = [f"call_{turn}_{number}" for number in range(draw(st.integers(0, 3)))]
        made += [{"type": "tool_use", "id": one, "name": "Read", "input": draw(inputs)} for one in ids]
        messages.append(Message("assistant", made or [text("ok")]))
        answers = [{"type": "tool_result", "tool_use_id": one, "content": draw(words)} for one in ids]
        after = [text(said) for said in draw(st.lists(words, min_size=not ids, max_size=1))]
        messages.append(Message("user", [*answers, *after]))
    return messages


@quick
@given(turns())
def test_a_body_says_what_the_messages_say(messages: list[Message]) -> None:
    found = as_messages(body_of(messages))
    assert found["messages"] == [{"role": one.role, "content": one.content} for one in messages]
    assert found["system"] == [text("s\n\nt")]


def test_results_are_messages_of_their_own_in_order() -> None:
    calls = [{"type": "tool_use", "id": one, "name": "Read", "input": {}} for one in ("a", "b", "c")]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [text("one"), text("two")]},
        {"type": "tool_result", "tool_use_id": "b", "content": "no such file", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c"},
    ]
    sent = body_of(go(Message("assistant", calls), Message("user", [*results, text("note"), text("more")])))["messages"]
    assert [one["role"] for one in sent] == ["system", "user", "assistant", "tool", "tool", "tool", "user"]
    assert [one["content"] for one in sent[2:]] == [
        None, "one\ntwo", f"{FAILED}\nno such file", "", "note\n\nmore",
    ]  # fmt: skip
    assert [one["tool_call_id"] for one in sent[3:6]] == ["a", "b", "c"]


def test_pictures_of_results_follow_the_results() -> None:
    calls = [{"type": "tool_use", "id": one, "name": "Read", "input": {}} for one in ("a", "b")]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [text("A picture:"), IMAGE]},
        {"type": "tool_result", "tool_use_id": "b", "content": "done"},
    ]
    sent = body_of(go(Message("assistant", calls), Message("user", [*results, text("note")])))["messages"]
    assert [one["role"] for one in sent[3:]] == ["tool", "tool", "user"]
    assert sent[3]["content"] == "A picture:\n" + BELOW.format("Picture", 1)
    label, picture, note = sent[5]["content"]
    assert "call a" in label["text"] and note == text("note")
    assert picture == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def test_what_the_protocol_cannot_carry_is_named() -> None:
    blocks = [
        {"type": "document", "title": "plan.pdf", "source": {"type": "base64"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
    ]
    parts = body_of([Message("user", blocks)])["messages"][1]["content"]
    assert parts[0] == text("[document plan.pdf]") and parts[2] == text("[image]")
    assert parts[1]["image_url"]["url"] == "https://example.org/a.png"


def test_thinking_goes_back_under_the_name_it_came_with() -> None:
    ours = {"type": "thinking", "thinking": "Hm.", "signature": "", "field": "reasoning"}
    signed = {"type": "thinking", "thinking": "Elsewhere.", "signature": "abc"}
    sealed = {"type": "redacted_thinking", "data": "abc"}
    messages = go(
        Message("assistant", [ours, text("a")]), *go(), Message("assistant", [signed, sealed]), *go(),
        Message("assistant", [{"type": "thinking", "thinking": "Old.", "signature": ""}, text("b")]), *go(),
    )  # fmt: skip
    found = [one for one in body_of(messages)["messages"] if one["role"] == "assistant"]
    assert found == [
        {"role": "assistant", "content": "a", "reasoning": "Hm."},
        {"role": "assistant", "content": EMPTY},
        {"role": "assistant", "content": "b", "reasoning_content": "Old."},
    ]


def test_messages_are_encoded_once() -> None:
    bodies = Bodies()
    messages = go()
    first = bodies.message(request(messages), ABLE)
    messages += [Message("assistant", [text("a")]), *go()]
    second = bodies.message(request(messages), ABLE)
    assert second.startswith(first[:-2])
    kept = bodies._conversations.take(messages)
    assert bodies._conversations.take(messages) is kept and len(kept.messages) == 3


def test_fields_are_translated() -> None:
    schema = {"type": "object"}
    extra = {
        "stop_sequences": ["X"],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "cache_control": {"type": "ephemeral"},
        "context_management": {"edits": []},
        "seed": 3,
        "user": None,
    }
    found = body_of(go(), extra=extra, thinking={"type": "disabled"})
    assert found["stop"] == ["X"] and found["seed"] == 3 and found["reasoning_effort"] == "low"
    assert found["response_format"]["json_schema"] == {"name": "answer", "schema": schema, "strict": True}
    assert found["tool_choice"] == "required" and found["parallel_tool_calls"] is False
    assert found["chat_template_kwargs"] == {"enable_thinking": False}
    named = body_of(go(), extra={"tool_choice": {"type": "tool", "name": "Read"}})
    assert named["tool_choice"] == {"type": "function", "function": {"name": "Read"}}


def test_what_a_model_cannot_do_is_left_out() -> None:
    plain = Abilities(window=8_000, tools=False)
    found = body_of(go(), plain, thinking={"type": "adaptive"})
    assert not {"tools", "chat_template_kwargs", "thinking"} & found.keys()


def test_an_answer_is_left_room_in_the_window() -> None:
    small = Abilities(window=4_096)
    assert body_of(go(), small)["max_tokens"] == 50
    half = body_of([Message("user", [text("x" * 6_000)])], small, max_tokens=4_000)
    assert 1_900 < half["max_tokens"] < 2_096
    assert body_of([Message("user", [text("x" * 60_000)])], small, max_tokens=4_000)["max_tokens"] == LEAST
    assert json.loads(Bodies("max_completion_tokens").message(request(go()), small))["max_completion_tokens"] == 50


# -- answers ---------------------------------------------------------------------------------------------------------


def assembled(chunks: list[dict[str, Any]], window: int = 1_000) -> Answer:
    assembly = Assembly(window)
    parts = [part for chunk in chunks for part in assembly.take(chunk)] + assembly.finish(400)
    answer = parts[-1]
    assert isinstance(answer, Answer)
    done = [part for part in parts if isinstance(part, BlockDone)]
    assert [part.index for part in done] == list(range(len(done)))
    return answer


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def piece(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name",) if key in fields}
    return delta(tool_calls=[{**fields, "function": {**function, "arguments": arguments}}])


content = st.lists(
    st.one_of(
        words.map(text),
        words.map(lambda said: {"type": "thinking", "thinking": said, "signature": "", "field": "reasoning_content"}),
    ),
    max_size=4,
).filter(lambda blocks: all(a["type"] != b["type"] for a, b in pairwise(blocks)))


@quick
@given(content, st.lists(inputs, max_size=3), st.integers(1, 30))
def test_answer_is_the_message_whatever_the_pieces(
    blocks: list[dict[str, Any]], calls: list[dict[str, Any]], pieces: int
) -> None:
    made = [
        *blocks,
        *({"type": "tool_use", "id": f"c{n}", "name": "Read", "input": one} for n, one in enumerate(calls)),
    ]
    turn = {"content": made, "pieces": pieces}
    message = message_of(turn, answer_blocks(turn), "m", 10)
    answer = assembled(list(chunks_of(turn, made, message, usage=True)))
    assert answer.content == made and answer.stop_reason == message["stop_reason"] and not answer.broken
    assert answer.usage.input_tokens == 10


def test_calls_without_numbers_are_told_apart_by_their_ids() -> None:
    answer = assembled([piece('{"a": 1}', id="x", name="Read"), piece('{"b": 2}', id="y", name="Grep"), delta("stop")])
    assert [(one["id"], one["name"], one["input"]) for one in answer.content] == [
        ("x", "Read", {"a": 1}),
        ("y", "Grep", {"b": 2}),
    ]
    assert answer.stop_reason == "tool_use"


def test_calls_that_all_have_the_same_number() -> None:
    whole = [piece('{"a": 1}', index=0, id="x", name="Read"), piece('{"b": 2}', index=0, id="y", name="Read")]
    assert [one["id"] for one in assembled(whole).content] == ["x", "y"]


def test_fragments_that_alternate_between_calls() -> None:
    chunks = [
        piece("", index=0, id="x", name="Read"), piece("", index=1, id="y", name="Grep"),
        piece('{"a"', index=0), piece('{"b"', index=1), piece(": 1}", index=0), piece(": 2}", index=1),
    ]  # fmt: skip
    assert [one["input"] for one in assembled(chunks).content] == [{"a": 1}, {"b": 2}]


def test_a_call_without_an_id_gets_one_and_arguments_may_be_an_object() -> None:
    answer = assembled([piece({"a": 1}, index=0, name="Read"), delta("tool_calls")])
    assert answer.content[0]["id"].startswith("call_") and answer.content[0]["input"] == {"a": 1}
    assert assembled([piece(None, index=0, id="x", name="Read"), delta("tool_calls")]).content[0]["input"] == {}


@pytest.mark.parametrize(
    ("finish", "fields", "reason"),
    [
        ("stop", {"content": "a"}, "end_turn"),
        ("length", {"content": "a"}, "max_tokens"),
        ("content_filter", {"content": "a"}, "refusal"),
        ("tool_calls", {"content": "a"}, "end_turn"),
        ("eos", {"content": "a"}, "end_turn"),
        (None, {"refusal": "No."}, "refusal"),
    ],
)
def test_finish_reasons(finish: str | None, fields: dict[str, Any], reason: str) -> None:
    answer = assembled([delta(**fields), delta(finish)])
    assert answer.stop_reason == reason and answer.content[0]["text"] == next(iter(fields.values()))


def test_a_full_window_is_told_from_an_answer_at_its_limit() -> None:
    usage = {"usage": {"prompt_tokens": 900, "completion_tokens": 100}}
    assert assembled([delta("length", content="a"), usage]).stop_reason == "model_context_window_exceeded"
    assert assembled([delta("length", content="a"), usage], window=1_001).stop_reason == "max_tokens"


def test_usage_is_estimated_where_nobody_counts() -> None:
    usage = assembled([delta("stop", content="x" * 40)]).usage
    assert (usage.input_tokens, usage.output_tokens) == (100, 10)


def test_both_names_of_reasoning() -> None:
    for field in ("reasoning", "reasoning_content"):
        assembly = Assembly(1_000)
        parts = assembly.take(delta(**{field: "Hm."})) + assembly.take(delta(content="a"))
        assert [type(part) for part in parts] == [ThinkingDelta, BlockDone, TextDelta]
        answer = assembly.finish(0)[-1]
        assert isinstance(answer, Answer)
        assert answer.content[0] == {"type": "thinking", "thinking": "Hm.", "signature": "", "field": field}
    both = assembled([delta(reasoning="Hm.", reasoning_content="Hm."), delta(content="a")])
    assert [one["type"] for one in both.content] == ["thinking", "text"]


@pytest.mark.parametrize("chunk", [{"choices": ["x"]}, {"choices": [{"delta": {"content": 5}}]}, {"choices": 5}])
def test_a_chunk_without_sense_is_a_passing_failure(chunk: dict[str, Any]) -> None:
    with pytest.raises(Failure) as caught:
        assembled([chunk])
    assert isinstance(caught.value.error, Overloaded)


# -- failures and abilities --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "no", "type": "bad", "code": "context_length_exceeded"}}, TooLong),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "request (9 tokens)"}}, TooLong),
        (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens."}, TooLong),
        (500, {"error": {"message": "the request exceeds the available context size"}}, TooLong),
        (400, {"error": "model requires more system memory"}, BadRequest),
        (404, {"error": {"message": "model 'x' not found", "type": "api_error"}}, BadRequest),
        (422, {"detail": [{"msg": "bad"}]}, BadRequest),
        (429, {"error": {"message": "slow", "type": "rate_limit"}}, RateLimited),
        (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, Overloaded),
    ],
)  # fmt: skip
def test_error_answers(status: int, body: dict[str, Any], kind: type[ProviderError]) -> None:
    assert type(from_answer(status, body, {}).error) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "server_error", "message": "boom", "code": 500}, Overloaded),
        ({"type": "BadRequestError", "message": "no", "code": 400}, BadRequest),
        ({"type": "rate_limit_exceeded", "message": "slow"}, RateLimited),
        ({"message": "context window is full"}, TooLong),
        ("out of memory", Overloaded),
    ],
)
def test_errors_in_a_stream(error: Any, kind: type[ProviderError]) -> None:
    assert type(from_chunk({"error": error}).error) is kind


def test_abilities_by_settings_by_table_and_cautious() -> None:
    def of(model: str, **table: Any) -> Abilities:
        return abilities_of(model, table, 32_768, 4_096)

    unknown = of("mystery-7b")
    assert (unknown.window, unknown.max_output, unknown.images, unknown.tools) == (32_768, 4_096, False, True)
    assert not unknown.documents and not unknown.tool_references and not unknown.thinking and unknown.price is None
    assert of("Qwen/Qwen3-Coder-30B").window == 262_144 and of("qwen3:8b").window == 40_960
    assert of("gpt-4o-mini").images and not of("SmolLM2-135M-Instruct.Q4_1.gguf").tools
    ours = of("qwen3:8b", qwen={"window": 9_000}, qwen3={"window": 16_000, "images": True})
    assert (ours.window, ours.max_output, ours.images, ours.thinking) == (16_000, 8_000, True, True)
    priced = of("mystery-7b", mystery={"price": {"input": 1.0, "output": 2.0}})
    assert priced.price == {"input": 1.0, "output": 2.0}
    for entry in ({"window": "big"}, {"speed": 1}, 5):
        with pytest.raises(UsageError, match=r'openai\.models\."mystery"'):
            of("mystery-7b", mystery=entry)


def test_importing_the_provider_loads_no_client() -> None:
    code = (
        "import sys, pegboard_openai_compatible.provider;"
        "print(sorted({'httpx2', 'pydantic', 'h11', 'anyio', 'asyncio', 'ssl'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
