"""What the tests of this provider share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pegboard_openai_compatible
import pytest
from pegboard.manifest import read_provider
from pegboard.testing.providers import Sleep
from pegboard_openai_compatible.provider import Chat, make

MANIFEST = Path(pegboard_openai_compatible.__file__).with_name("provider.toml")


class Values:
    """Settings at their defaults, with some changed."""

    def __init__(self, **changed: Any) -> None:
        declared = {key: setting.default for key, setting in read_provider(MANIFEST).settings.items()}
        core = {"provider.base_url": ""}
        self._values = {**core, **declared, **{key.replace("__", "."): value for key, value in changed.items()}}

    def value(self, key: str) -> Any:
        return self._values[key]


def made_at(url: str, sleep: Sleep | None = None, environ: Mapping[str, str] | None = None, **changed: Any) -> Chat:
    """The provider, as the loader makes it, for a service at ``url``; setting names with ``__`` for the dot."""
    return make(Values(**changed), {"OPENAI_BASE_URL": f"{url}/v1", **(environ or {})}, sleep=sleep)


@pytest.fixture
def provider_at() -> Callable[..., Chat]:
    return made_at


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
