"""`ProviderSuite`: what every provider must do on the wire, as tests that its author subclasses.

    class TestMine(ProviderSuite):
        def make(self, url, sleep):
            return MyProvider(base_url=url, key="any", sleep=sleep)

The tests run the provider, unchanged, against the strict `MessagesService`. A provider of another protocol overrides
`serve` with a service of its own that plays the same scripts. Tests that a model's abilities rule out are skipped.
"""

from __future__ import annotations

import socket
from contextlib import aclosing
from typing import Any, cast

import anyio
import pytest

from pegboard.call import Block
from pegboard.errors import BadRequest, Overloaded, ProviderError, RateLimited, TooLong
from pegboard.provider import Answer, Message, Retrying, TextDelta, ThinkingDelta
from pegboard.testing.messages import Script
from pegboard.testing.providers_bench import PATIENCE, Naps, ProviderBench, Sleep, ask, results, text, tool, unmarked

__all__ = ["ProviderBench", "ProviderSuite", "Sleep"]

TRIES = 10
"""[C] Most tries of one request."""
THINKING: list[Block] = [{"type": "thinking", "thinking": "Hm \u00e4\n"}, {"type": "redacted_thinking"}]
LONGEST_WAIT = 32.0
"""[C] Most seconds between two tries that the service did not ask for."""


class ProviderAnswers(ProviderBench):
    """What a provider makes of the answers of a service."""

    async def test_text_arrives_in_parts_and_whole(self) -> None:
        async with self.playing(["One two three."]) as (provider, _, _):
            parts = await self.parts(provider, ask())
        answer = cast(Answer, parts[-1])
        assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == "One two three."
        assert answer.content == [text("One two three.")]
        assert (answer.stop_reason, answer.cut, answer.broken) == ("end_turn", False, {})
        assert answer.id and answer.model == self.model

    async def test_text_is_kept_to_the_byte(self) -> None:
        words = 'a\r\nb\r c\u2028d\u0085e "f" \\g \x7f\t\U0001f600 \u00e4\u0301 data: x\n\nevent: ping\n\n'
        async with self.playing([{"content": [text(words)], "pieces": 60}]) as (provider, _, _):
            assert (await self.answer(provider, ask())).content == [text(words)]

    async def test_call_in_fragments(self) -> None:
        given = {"file_path": '/a "b" \\ \u00e4\U0001f600', "deep": [{"x": None, "y": 1.5, "z": True}], "n": 2**60}
        async with self.playing([{"content": [tool(input=given)], "pieces": 500}, "ok"]) as (provider, _, _):
            messages = ask()
            answer = await self.turn(provider, messages)
            assert answer.stop_reason == "tool_use"
            assert answer.content[0]["input"] == given
            assert (await self.answer(provider, messages)).content == [text("ok")]

    async def test_several_calls_keep_their_order(self) -> None:
        calls = [text("Three."), tool(input={"n": 1}), tool("Grep", {"n": 2}), tool(input={"n": 3})]
        async with self.playing([{"content": calls}, "ok"]) as (provider, _, _):
            messages = ask()
            answer = await self.turn(provider, messages)
            assert [block.get("input", {}).get("n") for block in answer.content] == [None, 1, 2, 3]
            await self.answer(provider, messages)

    async def test_loop_3_thinking_is_sent_back_unchanged(self) -> None:
        thinking = [block for block in THINKING if block["type"] in self.thinking_blocks]
        async with self.playing([{"content": [*thinking, tool()]}, "ok"]) as (provider, service, _):
            if not provider.abilities(self.model).thinking:
                pytest.skip("the model does not think")
            messages = ask()
            parts = await self.parts(provider, messages)
            answer = cast(Answer, parts[-1])
            assert "".join(part.text for part in parts if isinstance(part, ThinkingDelta)) == "Hm \u00e4\n"
            assert [block["type"] for block in answer.content] == [*self.thinking_blocks, "tool_use"]
            messages += [Message("assistant", answer.content), results(answer)]
            await self.answer(provider, messages)
            assert service.bodies[-1]["messages"][1]["content"] == answer.content

    async def test_loop_4_paused_turn_goes_on_from_the_same_content(self) -> None:
        searching: list[Block] = [
            text("Searching."),
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        ]
        script: Script = [{"content": searching, "stop_reason": "pause_turn"}, "Found."]
        async with self.playing(script) as (provider, service, _):
            if not provider.abilities(self.model).server_tools:
                pytest.skip("the service has no tools of its own")
            messages = ask()
            answer = await self.answer(provider, messages)
            assert (answer.stop_reason, answer.content) == ("pause_turn", searching)
            messages.append(Message("assistant", answer.content))
            assert (await self.answer(provider, messages)).content == [text("Found.")]
            assert service.bodies[-1]["messages"][-1] == {"role": "assistant", "content": searching}

    @pytest.mark.parametrize("raw", ['{"file_path": "/a', "{'a': 1}", "[1, 2]", '"text"', '{"a": NaN}', '{"a": 1} x'])
    async def test_loop_5_broken_input_is_told_and_the_next_turn_works(self, raw: str) -> None:
        async with self.playing([{"content": [text("Hm."), tool(raw_input=raw)]}, "ok"]) as (provider, _, _):
            messages = ask()
            answer = await self.turn(provider, messages)
            assert answer.broken == {1: raw}
            assert answer.content[1]["input"] == {}
            assert not answer.cut
            assert (await self.answer(provider, messages)).content == [text("ok")]

    @pytest.mark.parametrize("raw", ['{"file_path": "/a', ""])
    async def test_call_that_was_cut(self, raw: str) -> None:
        script: Script = [{"content": [text("Hm."), tool(raw_input=raw)], "stop_reason": "max_tokens"}, "ok"]
        async with self.playing(script) as (provider, _, _):
            messages = ask()
            answer = await self.turn(provider, messages)
            assert (answer.stop_reason, answer.cut, answer.broken) == ("max_tokens", True, {1: raw})
            assert answer.content[1]["input"] == {}
            await self.answer(provider, messages)

    async def test_text_that_was_cut_is_kept(self) -> None:
        async with self.playing([{"content": [text("Half a")], "stop_reason": "max_tokens"}]) as (provider, _, _):
            answer = await self.answer(provider, ask())
        assert (answer.stop_reason, answer.cut, answer.content) == ("max_tokens", False, [text("Half a")])

    async def test_thinking_that_was_cut_is_not_kept(self) -> None:
        content = [{"type": "thinking", "thinking": "Half a", "signature": ""}]
        async with self.playing([{"content": content, "stop_reason": "max_tokens"}]) as (provider, _, _):
            answer = await self.answer(provider, ask())
        assert (answer.cut, answer.content) == (True, [])

    @pytest.mark.parametrize("reason", ["stop_sequence", "refusal", "model_context_window_exceeded"])
    async def test_stop_reason_passes(self, reason: str) -> None:
        async with self.playing([{"content": [text("So far.")], "stop_reason": reason}]) as (provider, _, _):
            assert (await self.answer(provider, ask())).stop_reason == reason

    async def test_usage(self) -> None:
        counts = {"input_tokens": 5, "output_tokens": 7, "cache_creation_input_tokens": 11}
        usage = {**counts, "cache_read_input_tokens": 13}
        async with self.playing([{"content": [text("x")], "usage": usage}]) as (provider, _, _):
            found = (await self.answer(provider, ask())).usage
        assert {name: getattr(found, name) for name in usage} == usage

    async def test_parts_come_while_the_answer_is_made(self) -> None:
        script = [{"content": [text("one two three four")], "pieces": 20, "event_delay": 0.03, "delay": 0.03}]
        async with self.playing(script) as (provider, service, _):
            parts = provider.stream(self.request_of(ask()))
            assert isinstance(await anext(parts), TextDelta)
            assert service.requests[0].sent < 10
            assert isinstance([part async for part in parts][-1], Answer)

    async def test_a_megabyte_both_ways(self) -> None:
        large = "0123456789abcde\n" * 65_536
        async with self.playing([{"content": [tool(input={"content": large})]}, "ok"]) as (provider, service, _):
            messages = ask(large)
            answer = await self.turn(provider, messages)
            assert answer.content[0]["input"] == {"content": large}
            await self.answer(provider, messages)
            assert service.bodies[-1]["messages"][0]["content"][0]["text"] == large


class ProviderFailures(ProviderBench):
    """What a provider makes of failures: repeats that are announced, errors that say what happened."""

    async def test_loop_6_rate_limit_waits_as_long_as_asked(self) -> None:
        limited = {"http_status": 429, "headers": {"retry-after": "2"}, "error": {"message": "slow down"}}
        async with self.playing([limited, "ok"]) as (provider, service, naps):
            parts = await self.parts(provider, ask())
            retrying = [part for part in parts if isinstance(part, Retrying)]
            assert naps.taken == [2.0]
            assert [(part.attempt, part.max_attempts, part.delay, part.status) for part in retrying] == [
                (1, TRIES, 2.0, 429)
            ]
            assert service.bodies[0] == service.bodies[1]

    @pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 504, 529])
    async def test_passing_failure_is_repeated(self, status: int) -> None:
        async with self.playing([{"http_status": status}, {"http_status": status}, "ok"]) as (provider, _, naps):
            parts = await self.parts(provider, ask())
        assert [part.status for part in parts if isinstance(part, Retrying)] == [status, status]
        assert [part.delay for part in parts if isinstance(part, Retrying)] == naps.taken
        assert all(0 < seconds <= LONGEST_WAIT for seconds in naps.taken)

    async def test_tries_end(self) -> None:
        async with self.playing(lambda body: {"http_status": 529}) as (provider, service, naps):
            with pytest.raises(Overloaded) as caught:
                await self.parts(provider, ask())
            assert caught.value.status == 529
            assert len(service.bodies) == TRIES
            assert len(naps.taken) == TRIES - 1
            assert naps.taken[-1] > naps.taken[0]

    async def test_rate_limit_that_stays(self) -> None:
        limited = {"http_status": 429, "headers": {"retry-after": "1"}}
        async with self.playing(lambda body: limited) as (provider, _, naps):
            with pytest.raises(RateLimited) as caught:
                await self.parts(provider, ask())
            assert caught.value.after == 1.0
            assert naps.taken == [1.0] * (TRIES - 1)

    @pytest.mark.parametrize("events", [0, 1, 4, 6])
    async def test_cut_stream_is_repeated(self, events: int) -> None:
        cut = {"content": [text("void words"), tool()], "cut_after_events": events}
        async with self.playing([cut, "ok"]) as (provider, _, naps):
            parts = await self.parts(provider, ask())
        assert len(naps.taken) == 1
        assert [type(part) for part in parts].count(Retrying) == 1
        assert cast(Answer, parts[-1]).content == [text("ok")]

    @pytest.mark.parametrize("kind", ["overloaded_error", "api_error"])
    async def test_passing_error_event_is_repeated(self, kind: str) -> None:
        failing = {"content": [text("void")], "stream_error": {"type": kind, "message": "later"}}
        async with self.playing([failing, "ok"]) as (provider, _, naps):
            assert (await self.answer(provider, ask())).content == [text("ok")]
        assert len(naps.taken) == 1

    async def test_other_error_event_ends_the_request(self) -> None:
        error = {"type": "invalid_request_error", "message": "No such luck."}
        async with self.playing([{"content": [text("void")], "stream_error": error}]) as (provider, _, naps):
            with pytest.raises(BadRequest, match="No such luck"):
                await self.parts(provider, ask())
        assert naps.taken == []

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
    async def test_refused_request_is_not_repeated(self, status: int) -> None:
        script = [{"http_status": status, "error": {"message": "No such luck."}}]
        async with self.playing(script) as (provider, service, _):
            with pytest.raises(BadRequest, match="No such luck") as caught:
                await self.parts(provider, ask())
            assert caught.value.status == status
            assert len(service.bodies) == 1

    async def test_too_large_and_too_long(self) -> None:
        async with self.playing([{"http_status": 413}], window=5_000) as (provider, service, _):
            with pytest.raises(TooLong):
                await self.parts(provider, ask())
            with pytest.raises(TooLong):
                await self.parts(provider, ask("word " * 6_000))
            assert len(service.bodies) == 2

    async def test_nobody_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        naps = Naps()
        provider = self.make(f"http://127.0.0.1:{port}", naps)
        with pytest.raises(Overloaded):
            await self.parts(provider, ask())
        assert len(naps.taken) == TRIES - 1
        await provider.close()


class ProviderSuite(ProviderAnswers, ProviderFailures):
    """All tests of a provider. Subclass it and define `make`."""

    async def test_cancelling_closes_the_connection(self) -> None:
        slow = {"content": [text("word " * 100)], "pieces": 100, "event_delay": 0.05}
        async with self.playing([slow, "ok"]) as (provider, service, _):
            with anyio.move_on_after(PATIENCE) as scope:
                async for part in provider.stream(self.request_of(ask())):
                    if isinstance(part, TextDelta):
                        scope.cancel()
            assert await self.hung_up(service)
            assert (await self.answer(provider, ask())).content == [text("ok")]

    async def test_leaving_the_stream_closes_the_connection(self) -> None:
        slow = {"content": [text("word " * 100)], "pieces": 100, "event_delay": 0.05}
        async with self.playing([slow]) as (provider, service, _):
            async with aclosing(cast(Any, provider.stream(self.request_of(ask())))) as parts:
                assert isinstance(await anext(parts), TextDelta)
            assert await self.hung_up(service)

    async def test_cancelling_before_the_answer_begins(self) -> None:
        async with self.playing([{"content": [text("late")], "delay": PATIENCE}]) as (provider, service, _):
            with anyio.move_on_after(0.3):
                await self.parts(provider, ask())
            assert await self.hung_up(service)

    async def test_several_streams_at_once(self) -> None:
        def echo(body: dict[str, Any]) -> dict[str, Any]:
            return {"content": [text("re: " + body["messages"][0]["content"][0]["text"])], "event_delay": 0.005}

        found: dict[str, list[Block]] = {}
        async with self.playing(echo) as (provider, _, _), anyio.create_task_group() as group:

            async def one(words: str) -> None:
                found[words] = (await self.answer(provider, ask(words))).content

            for number in range(5):
                group.start_soon(one, f"n{number}")
        assert found == {f"n{number}": [text(f"re: n{number}")] for number in range(5)}

    async def test_everything_in_a_request_reaches_the_service(self) -> None:
        extra = {"metadata": {"user_id": "u"}, "stop_sequences": ["STOP"]}
        async with self.playing(["ok"]) as (provider, service, _):
            await self.answer(provider, ask(), thinking={"type": "adaptive"}, extra=extra, max_tokens=77)
            body = service.bodies[0]
        assert body["model"] == self.model and body["max_tokens"] == 77
        assert body["system"][0]["text"] == "You are a test."
        assert [entry["name"] for entry in body["tools"]] == ["Read"]
        assert body["thinking"] == {"type": "adaptive"}
        assert {key: body[key] for key in extra} == extra

    async def test_text_that_is_no_utf_8(self) -> None:
        async with self.playing(["ok"]) as (provider, _, _):
            assert (await self.answer(provider, ask("a \ud800 b"))).content == [text("ok")]

    async def test_long_conversation_is_accepted_at_every_turn(self) -> None:
        def step(body: dict[str, Any]) -> dict[str, Any]:
            wide = len(body["messages"]) % 6 == 1
            return {"content": [text("Next."), *[tool(input={"n": n}) for n in range(12 if wide else 1)]]}

        async with self.playing(step) as (provider, service, _):
            messages = ask()
            for _ in range(12):
                await self.turn(provider, messages)
            shown = [{"role": message.role, "content": message.content} for message in messages[:-2]]
            assert unmarked(service.bodies[-1]["messages"]) == shown

    async def test_count(self) -> None:
        async with self.playing([]) as (provider, _, naps):
            short = await provider.count(self.request_of(ask("x"), thinking={"type": "adaptive"}))
            assert 0 < short < await provider.count(self.request_of(ask("word " * 1_000)))
            assert naps.taken == []

    async def test_models(self) -> None:
        names = [f"model-{number}" for number in range(150)]
        async with self.playing([], models=names) as (provider, _, _):
            assert await provider.models() == names

    async def test_abilities_of_an_unknown_model_are_careful(self) -> None:
        async with self.playing([]) as (provider, _, _):
            unknown = provider.abilities("nobody-knows-this")
        assert unknown.window > unknown.max_output > 0
        assert unknown.price is None

    async def test_it_can_be_closed_at_any_time(self) -> None:
        async with self.playing(["one", "two"]) as (provider, _, _):
            await provider.close()
            await self.answer(provider, ask())
            await provider.close()
            await provider.close()
            await self.answer(provider, ask())

    async def test_errors_are_provider_errors(self) -> None:
        async with self.playing([{"http_status": 400}]) as (provider, _, _):
            with pytest.raises(ProviderError) as caught:
                await self.parts(provider, ask())
        assert "400" in str(caught.value) and "Traceback" not in str(caught.value)
