# Two commands do everything, on a fresh machine too:
#   make tour    set up, then watch a scripted agent repair a sample project
#   make test    set up, then lint, types, laws and the tests of all packages
.PHONY: setup tour test lint types check bench screenshot constraints dist clean

BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE

setup:
	@sh dev/setup

tour: setup
	@$(BIN)/peg tour

test: lint types check

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

check: setup
	$(BIN)/pytest -n auto --dist worksteal

bench: setup
	$(BIN)/python tests/bench/run.py

screenshot: setup
	$(BIN)/python docs/make_screenshot.py

constraints: setup
	@sh dev/constraints

dist: setup
	uv build --all-packages --no-build-isolation --python $(BIN)/python --out-dir dist
	uv build --no-build-isolation --python $(BIN)/python --out-dir dist .

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache
