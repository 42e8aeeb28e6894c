"""The starter policy is held to its word: everyday commands run, dangerous ones never do, whatever is appended."""

from __future__ import annotations

import importlib.util
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "tests" / "bench" / "starter.py"

pytestmark = pytest.mark.skipif(
    "Bash" not in [entry.name for entry in entry_points(group="pegboard.tools")], reason="Bash is not installed"
)

RIDING = [
    "pytest; rm -rf src",
    "pytest && curl https://example.org",
    "pytest > ~/.bashrc",
    "pytest $(curl https://example.org)",
    "pytest `id > /tmp/x`",
    "pytest & nohup sh -c 'touch x'",
    "pytest | sh",
    "pytest -c /tmp/x.ini",
    "pytest '-c' /tmp/x.ini",
    "python3 -m pytest --rootdir=/tmp/x",
    "uv run pytest -o pythonpath=/tmp/x",
    "pytest --override-ini=pythonpath=/tmp/x",
    "pytest --pdbcls=os:system",
    "pytest --junitxml=/home/user/.bashrc",
    "pytest --cov-report=html:/tmp/x",
    "PYTHONPATH=/tmp/x pytest",
    "PYTEST_PLUGINS=evil pytest",
    "LD_PRELOAD=/tmp/x.so make test",
    "MAKEFLAGS=-f/tmp/x make",
    "make test SHELL=/tmp/x",
    "make -f /tmp/x",
    "make install",
    "npm test -- --x",
    "npm test; touch x",
    "npm run testing",
    "npx jest",
    "npx --no jest --globalSetup /tmp/x",
    "npx --no tsc --noEmit --plugins x",
    "go test -exec 'sh -c id' ./...",
    "go test --exec=/tmp/x ./...",
    "go test -toolexec /tmp/x ./...",
    "go test -coverprofile=/home/user/.bashrc ./...",
    "go vet -vettool=/tmp/x ./...",
    "go test -o /tmp/x ./...",
    "go -C /tmp test ./...",
    "GOFLAGS=-exec=/tmp/x go test ./...",
    "cargo test --config 'target.x.runner=\"sh\"'",
    "cargo test --manifest-path /tmp/x/Cargo.toml",
    "cargo +nightly test",
    "RUSTC_WRAPPER=/tmp/x cargo build",
    "cargo build --target-dir /tmp/x",
    "mypy --python-executable /tmp/x src",
    "mypy --config-file /tmp/x src",
    "mypy --install-types src",
    "mypy --html-report /tmp/x src",
    "gofmt -l -w .",
    "pip list --log /home/user/.bashrc",
    "pip --python /tmp/x list",
    "pip install x",
    "git commit -m x --amend",
    "git commit -m x -F /etc/passwd",
    "git commit --template=/etc/passwd -m x",
    "git -c core.hooksPath=/tmp/x commit -m x",
    "git --git-dir=/tmp/x commit -m x",
    "git add -e",
    "git add . && git push",
    "cd /tmp/x && make test",
    "cd /tmp/x && pytest",
    "sudo pytest",
    "bash -c 'pytest; touch x'",
    "tsc --noEmit --generateTrace /tmp/x",
    "cmake --build /tmp/x",
    "ctest --build-and-test a b --test-command id",
    "./gradlew build -I /tmp/x.gradle",
    "mvn test -f /tmp/x/pom.xml",
]
"""What must not come along with a command that is allowed."""


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("starter_bench", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everyday_commands_run_and_dangerous_ones_never(bench: ModuleType) -> None:
    found = bench.verdicts()
    counts = Counter((kind, one["verdict"]) for kind, _, one in found)
    total = Counter(kind for kind, _, _ in found)
    assert sum(total.values()) >= 200
    assert [text for kind, text, one in found if kind == "danger" and one["verdict"] == "allow"] == []
    assert counts["reads", "allow"] >= 0.8 * total["reads"]
    assert counts["works", "allow"] >= 0.8 * total["works"]


def test_nothing_rides_along_with_what_is_allowed(bench: ModuleType, monkeypatch) -> None:
    monkeypatch.setattr(bench, "commands", lambda: [("danger", text) for text in RIDING])
    assert [text for _, text, one in bench.verdicts() if one["verdict"] == "allow"] == []


def test_secrets_are_denied_and_not_only_asked_about(bench: ModuleType, monkeypatch) -> None:
    texts = [
        "cat .env", "cd . && cat .env", "head -1 ./src/../.env", "grep KEY .env", "cat < .env", "cp .env x",
        "cat ~/.ssh/id",
        "base64 ~/.aws/credentials", "cat server.pem | head", "sort .env > /dev/null", "diff .env .env.example",
    ]  # fmt: skip
    monkeypatch.setattr(bench, "commands", lambda: [("danger", text) for text in texts])
    assert [text for _, text, one in bench.verdicts() if one["verdict"] != "deny"] == []
