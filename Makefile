# make demo: the quickstart sweep on this machine.
# make chaos: kills, damaged files and faults; prints a table of figures, in an hour or two.
# make gpu-figures [PART=…]: what only a GPU can measure; gpu-kit: its libraries, to be copied there.
# make check: lint, types and the pure tests. make test: all tests, as CI runs them.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo chaos gpu-figures gpu-kit check test lint types pure schema install clean
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

check: install
	@$(MAKE) --no-print-directory -j2 pure types
	@$(MAKE) --no-print-directory lint

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

pure: install
	$(BIN)/python -m pytest -q -n auto --dist worksteal --maxprocesses 8 \
		--hypothesis-profile=check -m "not slow and not cluster and not browser"

test: lint types
	$(BIN)/python -m pytest

chaos: install
	HF_HUB_OFFLINE=1 PYTHONPATH=.:tests $(BIN)/python -m chaos

gpu-figures: install
	$(BIN)/python -m benchmarks.gpu_figures --part $(or $(PART),all)

gpu-kit: install
	$(BIN)/python -m benchmarks.gpu_kit $(KIT)

schema: install
	$(BIN)/python -c 'import json; from orchestrator.config.catalog import json_schema; \
		print(json.dumps(json_schema(), indent=2))' > docs/experiments.schema.json

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
