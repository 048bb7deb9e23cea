# make demo: the quickstart sweep on this machine. make test: what CI runs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint schema install clean
.DEFAULT_GOAL := install

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Decile needs Python 3.11 or newer: make PYTHON=python3.11 …"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: install
	$(BIN)/decile run experiments.yaml -e quickstart

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

schema: install
	$(BIN)/python -c 'import json; from orchestrator.config.catalog import json_schema; \
		print(json.dumps(json_schema(), indent=2))' > docs/experiments.schema.json

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
