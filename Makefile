# Each target sets up what it needs; the second run of any of them is instant.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
DATA ?= tests/bench/sets

.PHONY: serve test lint bench bench-retrieval openapi lock clean

serve: .venv/.serve
	$(BIN)/cmem-server serve

test: lint
	$(BIN)/pytest tests

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/.dev
	$(BIN)/python -m tests.bench

bench-retrieval: .venv/.dev
	$(BIN)/python -m tests.bench.retrieval $(DATA)

openapi: .venv/.serve
	$(BIN)/python -m app openapi

lock: .venv/.dev
	$(BIN)/uv pip compile --system-certs pyproject.toml --python-version 3.11 --universal --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -q -o requirements.lock
	$(BIN)/uv pip compile --system-certs pyproject.toml --group dev --python-version 3.11 --universal --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -q -o requirements-dev.lock

clean:
	rm -rf .venv .build .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.serve: requirements.lock pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

.venv/.dev: requirements-dev.lock pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@ .venv/.serve
