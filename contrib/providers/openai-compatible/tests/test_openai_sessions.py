"""The provider under the real loop: calls and results, pictures, keys, servers that speak in dialects."""

from __future__ import annotations

import base64
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard import events
from pegboard.agent import Agent, AgentSpec
from pegboard.cli.run import choose_provider
from pegboard.errors import BadRequest, ProviderError, UsageError
from pegboard.provider import Answer, Message, ModelRef, Request
from pegboard.testing import Willing
from pegboard.testing.chat import ChatService, problems
from pegboard.transcript import Transcript
from pegboard_openai_compatible.provider import Chat

pytestmark = pytest.mark.anyio
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def read(*paths: str) -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "name": "Read", "input": {"file_path": path}} for path in paths]}


async def ridden(bench: Any, service: ChatService, host: Willing, prompts: int = 1) -> Agent:
    """Run prompts in a session of its own, as `peg -p` does."""
    session = bench.session
    session.transcript = Transcript.create(session.directory, cwd=session.cwd, version="0")
    name, provider = choose_provider(session, "openai/local-test")
    async with session:
        agent = Agent(session, provider, AgentSpec(model=name), session.transcript)
        for _ in range(prompts):
            run = await agent.run("go")
            assert (run.text, run.errors) == ("done", [])
        await provider.close()
    assert [problem for entry in service.requests for problem in entry.problems] == []
    return agent


@pytest.fixture
def session_at(peg_session: Callable[..., Any]) -> Callable[..., Any]:
    def make(service: ChatService, **settings: Any) -> tuple[Any, Willing]:
        host = Willing()
        given = {"provider.base_url": service.url, **{key.replace("__", "."): one for key, one in settings.items()}}
        return peg_session(host=host, settings=given), host

    return make


async def test_prov_1_calls_results_and_reasoning_under_the_loop(session_at: Callable[..., Any]) -> None:
    thinking = {"type": "thinking", "thinking": "Both, then."}
    first = read("a.txt", "gone.txt")
    script = [{**first, "content": [thinking, *first["content"]], "reasoning": "reasoning"}, "done"]
    with ChatService(script) as service:
        bench, host = session_at(service)
        (bench.folder / "a.txt").write_text("alpha\n")
        await ridden(bench, service, host)
        sent = service.requests[-1].body["messages"]
    assistant = next(one for one in sent if one["role"] == "assistant")
    assert assistant["reasoning"] == "Both, then."
    results = [one for one in sent if one["role"] == "tool"]
    assert [one["tool_call_id"] for one in results] == [one["id"] for one in assistant["tool_calls"]]
    assert "alpha" in results[0]["content"] and "gone.txt" in results[1]["content"]


async def test_prov_2_a_picture_is_told_by_type_and_size_and_said_once(session_at: Callable[..., Any]) -> None:
    with ChatService([read("a.png"), read("b.png"), "done", "done"], images=False) as service:
        bench, host = session_at(service)
        for name in ("a.png", "b.png"):
            (bench.folder / name).write_bytes(base64.b64decode(PNG))
        await ridden(bench, service, host, prompts=2)
        results = [one["content"] for one in service.requests[-1].body["messages"] if one["role"] == "tool"]
    size = len(base64.b64decode(PNG))
    told = f"[image/png, {size:,} bytes: not shown, because local-test takes no images.]"
    assert len(results) == 2 and all(told in one for one in results)
    notices = [one.text for one in host.events if isinstance(one, events.Notice) and "takes no images" in one.text]
    assert len(notices) == 1
    kept = [record for record in bench.session.transcript.messages if "image" in str(record.content)]
    assert kept, "the transcript keeps the picture for a model that can see it"


async def test_prov_2_a_model_with_images_sees_the_picture(session_at: Callable[..., Any]) -> None:
    with ChatService([read("a.png"), "done"]) as service:
        bench, host = session_at(service, openai__models={"local": {"images": True}})
        (bench.folder / "a.png").write_bytes(base64.b64decode(PNG))
        await ridden(bench, service, host)
        picture = service.requests[-1].body["messages"][-1]["content"][1]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    assert not [one for one in host.events if isinstance(one, events.Notice) and "takes no" in one.text]


async def test_a_model_without_tools_is_offered_none_and_it_is_said(session_at: Callable[..., Any]) -> None:
    with ChatService(["done"]) as service:
        bench, host = session_at(service, openai__models={"local": {"tools": False}})
        await ridden(bench, service, host)
        assert "tools" not in service.requests[0].body
    assert [one.text for one in host.events if isinstance(one, events.Notice) and "takes no tools" in one.text]


async def test_the_registry_finds_the_provider_by_its_name_alone(session_at: Callable[..., Any]) -> None:
    with ChatService([]) as service:
        bench, _ = session_at(service)
        session = bench.session
        found = session.registry.provider(ModelRef.parse("openai/a/b"), session.settings, os.environ)
        assert found.name == "openai"
        with pytest.raises(UsageError, match="openai/local-test"):
            session.registry.provider(ModelRef.parse("local-test"), session.settings, os.environ)


def hello() -> Request:
    messages = [Message("user", [{"type": "text", "text": "hello"}])]
    return Request(model="m", system=[], tools=[], messages=messages, max_tokens=5)


async def answered(provider: Chat) -> Answer:
    try:
        parts = [part async for part in provider.stream(hello())]
    finally:
        await provider.close()
    assert isinstance(parts[-1], Answer)
    return parts[-1]


async def test_a_key_is_sent_where_there_is_one(provider_at: Callable[..., Chat]) -> None:
    with ChatService(["a", "b"], key="sk-1") as service:
        await answered(provider_at(service.url, None, {"OPENAI_API_KEY": "sk-1"}))
        with pytest.raises(BadRequest, match="OPENAI_API_KEY"):
            await answered(provider_at(service.url, None, {"OPENAI_API_KEY": "sk-2"}))
        with pytest.raises(BadRequest, match="401"):
            await answered(provider_at(service.url))


async def test_this_machine_needs_no_key_and_others_do(provider_at: Callable[..., Chat]) -> None:
    with ChatService(["a"]) as service:
        assert (await answered(provider_at(service.url))).content == [{"type": "text", "text": "a"}]
        assert "authorization" not in service.requests[0].headers
    with pytest.raises(ProviderError, match="OPENAI_API_KEY"):
        await answered(provider_at("https://models.example.org"))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("{}", "/v1/chat/completions"),
        ("{}/v1/", "/v1/chat/completions"),
        ("{}/v1beta/openai", "/v1beta/openai/chat/completions"),
    ],
)
async def test_addresses_with_and_without_a_path(provider_at: Callable[..., Chat], url: str, path: str) -> None:
    with ChatService(["a"]) as service:
        provider = provider_at("http://127.0.0.1:9", None, None, provider__base_url=url.format(service.url))
        if path.startswith("/v1/"):
            await answered(provider)
        else:
            with pytest.raises(BadRequest, match=path):
                await answered(provider)
        assert service.requests[0].path == path


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b""])
async def test_a_server_may_leave_out_half_of_the_protocol(provider_at: Callable[..., Chat], end: bytes) -> None:
    chunk = b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: waiting\n\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as sock:
                sock.recv(65_536)
                sock.sendall(head + chunk + end)

        thread = threading.Thread(target=serve)
        thread.start()
        answer = await answered(provider_at(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        thread.join()
    assert (answer.content, answer.stop_reason) == ([{"type": "text", "text": "hi"}], "end_turn")
    assert answer.id and answer.usage.input_tokens > 0


async def test_a_stream_without_an_end_is_repeated_and_then_told(provider_at: Callable[..., Chat]) -> None:
    async def sleep(seconds: float) -> None:
        return None

    with ChatService(lambda body: {"content": [], "cut_after_events": 1}) as service:
        provider = provider_at(service.url, sleep, None, openai__max_retries=1)
        with pytest.raises(ProviderError, match="broke"):
            await answered(provider)
        assert len(service.requests) == 2


ONE = {"role": "user", "content": "x"}
CALL = {"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
DONE = {"role": "tool", "tool_call_id": "a", "content": "done"}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([ONE, ASKED, DONE], None),
        ([ONE, ASKED, DONE, ONE], None),
        ([ONE, ASKED, ONE], "must be followed by tool messages"),
        ([ONE, ASKED], "tool_calls without responses"),
        ([ONE, DONE], "must be a response to a preceding message"),
        ([ONE, ASKED, DONE, DONE], "must be a response to a preceding message"),
        ([ONE, ASKED, DONE, ASKED, DONE], "duplicate ids"),
        ([ONE, ONE], "roles must alternate"),
        ([{"role": "assistant", "content": "x"}], "must begin with a user message"),
        ([ONE, {"role": "assistant", "content": ""}], "must contain content or tool_calls"),
        ([ONE, {"role": "system", "content": "x"}], "must be at the beginning"),
        ([{"role": "user", "content": ""}], "must not be empty"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}],
         "failed to decode the image"),
        ([ONE, {**ASKED, "tool_calls": [{**CALL, "function": {"name": "Read", "arguments": "{"}}]}, DONE],
         "must be the text of a JSON object"),
        ([{**ONE, "name": "x"}], "Unknown parameter: name"),
    ],
)  # fmt: skip
def test_the_strict_service_refuses_what_strict_servers_refuse(messages: list[Any], problem: str | None) -> None:
    found = problems({"model": "m", "messages": messages})
    assert found == [] if problem is None else problem in found[0]


@pytest.mark.parametrize(
    "fields",
    [{"tools": []}, {"max_tokens": 0}, {"system": "x"}, {"stream_options": {}}, {"model": ""}, {"messages": []}],
)
def test_the_strict_service_refuses_fields(fields: dict[str, Any]) -> None:
    assert problems({"model": "m", "messages": [ONE], **fields})


@pytest.mark.parametrize("listed", [["openai/local-test"], ["local-test", "claude-haiku-5-5"]])
def test_prov_3_only_the_models_of_the_managed_list(
    peg_session: Callable[..., Any], tmp_path: Path, listed: list[str]
) -> None:
    (tmp_path / "managed").mkdir(exist_ok=True)
    (tmp_path / "managed" / "managed.toml").write_text(f"[models]\navailable = {listed}\n")
    session = peg_session(settings={"models.available": ["*", "openai/other"]}).session
    assert choose_provider(session, "openai/local-test")[0] == "local-test"
    with pytest.raises(UsageError, match=rf"does not list the model other; it allows {listed[0]}"):
        choose_provider(session, "openai/other")
