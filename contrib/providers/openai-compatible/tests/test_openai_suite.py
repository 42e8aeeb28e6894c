"""The provider passes the whole suite against a strict service of its own protocol."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from pegboard.testing.chat import ChatService
from pegboard.testing.messages import MessagesService, Script
from pegboard.testing.providers import ProviderSuite, Sleep
from pegboard_openai_compatible.provider import Chat


class TestProv1Chat(ProviderSuite):
    model = "qwen-test"
    thinking_blocks = ("thinking",)

    @pytest.fixture(autouse=True)
    def maker(self, provider_at: Callable[..., Chat]) -> None:
        self._at = provider_at

    def make(self, url: str, sleep: Sleep) -> Chat:
        table = {self.model: {"window": 1_000_000, "max_output": 64_000, "thinking": True, "images": True}}
        return self._at(url, sleep, openai__models=table)

    def serve(self, script: Script, **options: Any) -> AbstractContextManager[MessagesService]:
        return ChatService(script, **options)
