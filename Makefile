# Each target sets up what it needs; the second run of any of them is instant.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
QUESTION_SETS ?= tests/bench/sets
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV_PIP = $(BIN)/uv pip
COMPILE = $(UV_PIP) compile --quiet --system-certs --python-version 3.11 --universal --generate-hashes \
  --no-emit-index-url --custom-compile-command "make lock"
# One process for each core; a process that has nothing left takes tests from the one that has most.
PARALLEL = --numprocesses auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help serve format lint check test bench bench-retrieval openapi docs dist lock clean

help: ## Print this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

serve: .venv/.serve ## Install the server and run it.
	$(BIN)/cmem-server serve

format: .venv/.dev ## Format the code and fix what can be fixed automatically.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: .venv/.dev ## Check format, style and types.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint ## Lint, then every test that needs no process and no PostgreSQL: about a minute.
	$(BIN)/pytest tests $(PARALLEL) -m "not process and not needs_postgresql"

test: lint ## Lint, then every test.
	$(BIN)/pytest tests $(PARALLEL)

bench: .venv/.dev ## Run all benchmarks at full size: about half an hour.
	$(BIN)/python -m tests.bench

bench-retrieval: .venv/.dev ## Measure the quality of search on QUESTION_SETS.
	$(BIN)/python -m tests.bench.retrieval $(QUESTION_SETS)

openapi: .venv/.serve ## Write openapi/openapi.json from the code.
	$(BIN)/cmem-server openapi

docs: .venv/.dev ## Write the reference pages from the code and build the site into .build/site.
	$(BIN)/python -m docs.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file .mkdocs.yml  # with --quiet, no warning would count

dist: .venv/.dev ## Build the wheel into .build/dist.
	rm -rf .build/dist
	$(BIN)/python -m hatchling build -t wheel -d .build/dist

lock: .venv/.dev ## Pin every dependency with its hashes.
	$(COMPILE) pyproject.toml -o requirements.lock
	$(COMPILE) pyproject.toml --group dev -o requirements-dev.lock
	echo uv | $(COMPILE) - --constraint requirements-dev.lock --no-annotate -o requirements-installer.lock

clean: ## Remove what the targets made; data stays.
	rm -rf .venv .build .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.serve: requirements.lock pyproject.toml | .venv/bin/python
	$(PIP_INSTALL) --require-hashes -r requirements.lock
	$(PIP_INSTALL) --no-deps --editable .
	touch $@

# uv installs in seconds what takes pip minutes. Where it cannot reach the index that pip is set up for, pip does it.
.venv/.dev: requirements-dev.lock requirements-installer.lock pyproject.toml | .venv/bin/python
	$(PIP_INSTALL) --require-hashes -r requirements-installer.lock
	$(UV_PIP) install --quiet --system-certs --require-hashes -r requirements-dev.lock \
	  || $(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	touch $@ .venv/.serve
