"""Both transports pass the whole suite."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pegboard.testing.providers import ProviderSuite, Sleep
from pegboard_anthropic.provider import Anthropic


class Suite(ProviderSuite):
    transport = ""

    @pytest.fixture(autouse=True)
    def maker(self, provider_at: Callable[..., Anthropic]) -> None:
        self._at = provider_at

    def make(self, url: str, sleep: Sleep) -> Anthropic:
        return self._at(url, sleep, provider__transport=self.transport)


class TestHttp(Suite):
    transport = "http"


class TestSdk(Suite):
    transport = "sdk"
