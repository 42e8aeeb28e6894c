"""One session of the real command that is resumed after each fault of the model service, with effects to count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pegboard.lines import FILE_NAME, read
from pegboard.testing.faults import Ended, Stage
from pegboard.testing.messages import MessagesService

OPTIONS = ("--permission-mode", "acceptEdits", "--allow", "Bash", "--output-format", "json")


class Play:
    """One session of the real command, resumed run after run, with effects that are counted."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.work, self.home = stage, stage.work, stage.room / "home"
        self.service: MessagesService | None = None
        self.count = self.work / "count.txt"

    def begin(self, **settings: Any) -> None:
        """A fresh home and project. ``settings`` are those of the provider."""
        for path in sorted([*self.home.rglob("*"), *self.work.iterdir()], reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder = self.home / ".peg"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{key} = {value}" for key, value in {"max_retries": 0, **settings}.items()]
        (folder / "settings.toml").write_text("\n".join(["[anthropic]", *lines, ""]))

    def peg(self, url: str, *more: str) -> tuple[Ended, dict[str, Any]]:
        """One run: how it ended, and its result object."""
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "ANTHROPIC_API_KEY": "sk-test"}
        env |= {"ANTHROPIC_BASE_URL": url, "PEG_MANAGED_DIR": str(self.stage.room / "managed")}
        again = ["-c"] if self.transcripts else []
        ended = self.stage.run(["-p", "go on", *again, *OPTIONS, *more], env)
        assert "Traceback" not in ended.err, ended.err
        return ended, json.loads(ended.out) if ended.out.startswith("{") and not more else {}

    def fails(self, url: str, *more: str, says: str = "", reason: str = "provider_error") -> dict[str, Any]:
        """A run that ends because of the service, and says so on both channels."""
        ended, result = self.peg(url, *more)
        assert ended.code == 1, ended
        assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
        assert result["terminal_reason"] == reason, result
        assert says in result["errors"][0] and result["errors"][0] in ended.err
        return result

    def ends_well(self, url: str, *more: str) -> dict[str, Any]:
        ended, result = self.peg(url, *more)
        assert (ended.code, result.get("subtype"), result.get("result")) == (0, "success", "done"), ended
        return result

    @property
    def transcripts(self) -> list[Path]:
        return sorted(self.home.glob(f".peg/projects/*/*/{FILE_NAME}"))

    def whole(self, *services: MessagesService, effects: int = 0) -> None:
        """No request was refused for its form, each call has one result, each effect happened once."""
        assert [problem for one in services for entry in one.requests for problem in entry.problems] == []
        (path,) = self.transcripts
        records = list(read(path))
        calls = [
            block["id"]
            for record in records
            if type(record).__name__ == "Assistant"
            for block in record.content
            if block["type"] == "tool_use"
        ]
        results = [record.id for record in records if type(record).__name__ == "Result"]
        assert len(set(calls)) == len(calls) and sorted(calls) == sorted(results)
        counted = self.count.read_text().split() if self.count.exists() else []
        assert counted == [str(number) for number in range(1, effects + 1)]


def acting(play: Play, number: int) -> dict[str, Any]:
    """An answer with thinking, text and two calls, both with effects."""
    note = {"file_path": str(play.work / f"note-{number}.md"), "content": f"{number}\n"}
    count = {"command": f"echo {number} >> count.txt"}
    return {
        "content": [
            {"type": "thinking", "thinking": f"This is number {number}."},
            {"type": "text", "text": f"Now number {number}."},
            {"type": "tool_use", "name": "Write", "input": note},
            {"type": "tool_use", "name": "Bash", "input": count},
        ]
    }


def events_of(turn: dict[str, Any]) -> int:
    """How many events the service sends for this turn."""
    from pegboard.testing.messages_events import answer_blocks, message_of, stream_of

    blocks = answer_blocks(turn)
    return len(list(stream_of(turn, blocks, message_of(turn, blocks, "m", 1))))


def cuts(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """This turn, cut after each of its events but the last, with which it is whole."""
    return [{**turn, "cut_after_events": after} for after in range(events_of(turn))]


def failure(status: int, **more: Any) -> dict[str, Any]:
    return {"http_status": status, "error": {"message": f"no {status}"}, **more}
