# make demo: the quickstart sweep on this machine. make test: what CI runs.
PYTHON ?= python3
BIN := .venv/bin
PURE := tasks policies cluster/resources.py orchestrator/stats \
	$(addprefix orchestrator/config/,$(addsuffix .py,catalog entries experiment library_settings yaml_lines claims)) \
	$(addprefix orchestrator/planning/,$(addsuffix .py,plan cells pools overlap)) \
	$(addprefix orchestrator/storage/,$(addsuffix .py,schema store)) \
	$(addprefix orchestrator/evaluation/,$(addsuffix .py,metrics groups)) \
	$(addprefix orchestrator/report/,$(addsuffix .py,steps paper)) \
	orchestrator/sampling/model.py orchestrator/difficulty \
	orchestrator/probing/adaptive.py orchestrator/selection/subsets.py \
	$(addprefix orchestrator/training/,$(addsuffix .py,cell_state ledger record early_stopping)) \
	$(addprefix orchestrator/cost/,$(addsuffix .py,memory forecast schedule throughput caps fit))

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
	$(BIN)/mypy --strict --follow-imports=silent $(PURE)

test: lint
	$(BIN)/python -m pytest

schema: install
	$(BIN)/python -c 'import json; from orchestrator.config.catalog import json_schema; \
		print(json.dumps(json_schema(), indent=2))' > docs/experiments.schema.json

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
