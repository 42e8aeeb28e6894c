"""The environment of child processes."""

from __future__ import annotations

import pytest
from pegboard.process import child_environment


@pytest.mark.parametrize(
    "name", ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "db_password", "AWS_SECRET_ACCESS_KEY"]
)
def test_credentials_stay_out(name):
    assert child_environment({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize("name", ["CDPATH", "GLOBIGNORE", "SHELLOPTS", "BASHOPTS"])
def test_a_command_means_what_was_judged(name):
    assert child_environment({name: "x", "HOME": "/h"}) == {"HOME": "/h"}


def test_the_rest_is_kept():
    environ = {"LANG": "C.UTF-8", "MONKEY": "1", "TOKENS": "2"}
    assert child_environment(environ) == environ
