# Everything a person does with this project. A fresh machine only needs Python 3.11 or later, git and make.

PYTHON ?= python3
UV ?= uv
VENV := .venv
BIN := $(VENV)/bin
INSTALL := -m pip --disable-pip-version-check install --quiet
PIP := $(BIN)/python $(INSTALL) --constraint constraints.txt
# gRPC has no wheels for free-threaded Python.
export SUITS := import sys, sysconfig as s; sys.exit(sys.version_info < (3, 11) or s.get_config_var("Py_GIL_DISABLED") == 1)
# Services and commands start in half the time when their bytecode is kept, which images of containers often switch off.
unexport PYTHONDONTWRITEBYTECODE
# A stamp that is newer than the files it depends on means that nothing needs to be installed.
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
PEERS := .venv-bench/.installed
CODE := $(wildcard libs services examples benchmarks tests tools)
IMAGE := protos/released.binpb

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test chaos soak fuzz lives histories lint lint-style lint-types lint-imports \
	lint-protos format protos release-image bench bench-claims bench-schedules bench-timers constraints clean

help:  ## List the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(RUNTIME)  ## Install what is needed to run Tradewind into .venv

setup-dev: $(DEV)  ## Also install what the tests and linters need

demo: $(RUNTIME)  ## Run the example flow on a separate stack
	@$(BIN)/python -m examples.momentum.demo

test: $(DEV)  ## Run the tests; ARGS="tests/unit -k cron" chooses some
	$(BIN)/pytest -n 3 --dist worksteal $(ARGS)

chaos: $(DEV)  ## Kill everything at random for ten minutes; CHAOS_SECONDS and CHAOS_SEED choose
	$(BIN)/pytest -m chaos -s tests/system/replicas $(ARGS)

soak: $(RUNTIME)  ## Check that memory stays flat over ten minutes of load and 10 000 idle connections; ARGS="--seconds 60"
	@$(BIN)/python -m benchmarks.soak $(ARGS)

fuzz: $(DEV)  ## Send every RPC random messages for five minutes; FUZZ_SECONDS chooses
	$(BIN)/pytest -m fuzz -s tests/system/test_fuzz.py $(ARGS)

lives: $(DEV)  ## Let the whole engine live random lives for five minutes; LIVES_SECONDS and LIVES_SEED choose
	$(BIN)/pytest -m lives -s tests/system/lives $(ARGS)

histories: $(DEV)  ## Compare memory and Redis over random histories, HISTORIES times as many as the tests do (20)
	HISTORIES=$${HISTORIES:-20} $(BIN)/pytest -n 3 --dist worksteal --timeout 3600 tests/stores/*/test_*same*.py $(ARGS)

lint: lint-style lint-types lint-imports lint-protos  ## Check style, types, imports and the contract

lint-style: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: $(DEV)
	$(BIN)/mypy -n 2 --python-version 3.11 $(CODE)
	$(BIN)/mypy -n 2 --python-version 3.13 $(CODE)

lint-imports: $(DEV)
	$(BIN)/lint-imports

lint-protos: $(DEV)
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking protos --against $(IMAGE)
	$(BIN)/python tools/generate_protos.py --check

format: $(DEV)  ## Format code and protos
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/buf format --write

protos: $(DEV)  ## Regenerate libs/tradewind/api from protos/
	$(BIN)/python tools/generate_protos.py

release-image: $(DEV)  ## Release the current contract: later changes must not break it
	$(BIN)/buf build protos --exclude-source-info -o $(IMAGE)

bench-claims: $(RUNTIME)  ## Measure the cost of a claim with 1 000 and with 500 000 node tasks waiting
	@$(BIN)/python -m benchmarks.claims $(ARGS)

bench-schedules: $(RUNTIME)  ## Measure the cost of a tick with 100 and with 100 000 registered schedules
	@$(BIN)/python -m benchmarks.schedules $(ARGS)

bench-timers: $(RUNTIME) $(PEERS)  ## Measure how late flows begin, due at one instant and every second, compared with peers
	@$(BIN)/python -m benchmarks.timers $(ARGS)

bench: $(RUNTIME) $(PEERS)  ## Compare a running stack with its peers and write docs/benchmarks.md
	$(BIN)/python -m benchmarks.run $(ARGS)

constraints:  ## Raise constraints.txt to the newest versions that pyproject.toml allows (needs uv)
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.11 --upgrade \
		--no-annotate --no-emit-index-url --custom-compile-command "make constraints" --output-file constraints.txt

clean:  ## Remove .venv and caches; what a stack keeps in .tradewind/ stays
	rm -rf $(VENV) .venv-bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): pyproject.toml constraints.txt
	@python=; for candidate in $(PYTHON) python3.14 python3.13 python3.12 python3.11; do \
		"$$candidate" -c "$$SUITS" 2>/dev/null && python=$$candidate && break; \
	done; \
	[ -n "$$python" ] || { echo "Tradewind needs Python 3.11 or later, not free-threaded (gRPC has no wheels for that):" \
		"install it, or name it with make PYTHON=..."; exit 1; }; \
	echo "Setting up $(VENV) with $$($$python --version): under a minute, and only when pyproject.toml or constraints.txt changed."; \
	[ -x $(BIN)/pip ] || "$$python" -m venv $(VENV)
	@$(PIP) --editable .
	@touch $@

$(DEV): $(RUNTIME)
	@echo "Adding what the tests and linters need."
	@$(PIP) pip
	@$(PIP) --group dev
	@touch $@

$(PEERS): benchmarks/requirements.txt | $(RUNTIME)
	@echo "Setting up .venv-bench, which keeps the benchmark's peers apart."
	@$(BIN)/python -m venv .venv-bench
	@.venv-bench/bin/python $(INSTALL) --requirement benchmarks/requirements.txt
	@touch $@
