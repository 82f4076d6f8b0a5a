# `make` alone tells every command. Set-up is a step of each command that needs it.

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
LOCAL := PYTHONPATH=deploy $(PYTHON) -m local
UV_VERSION := 0.13.8
COMPILE := $(VENV_PYTHON) -m uv pip compile --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) --quiet

PARALLEL := -n auto --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench lint lock soak audit up down clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything needed: .venv, Redis, Java, Kafka (quick when it is done)
	@$(LOCAL).setup

demo: setup ## A season of rounds through the service on real Kafka and Redis (ARGS=...)
	@$(VENV_PYTHON) deploy/demo.py $(ARGS)

test: lint ## Everything that .ci/run runs: lint, types, all tests (ARGS="-k name")
	@$(VENV_PYTHON) -m pytest $(PARALLEL) $(ARGS)

bench: setup ## Benchmarks: one JSON object a line on standard output (ARGS=...)
	@$(LOCAL).peers
	@$(VENV_PYTHON) -m tests.benchmarks $(ARGS)

soak: setup ## Fuzz the decoder and simulate faults at length (SEEDS=N MINUTES=M)
	@$(VENV_PYTHON) -m tests.simulation.soak \
		$(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

lint: setup ## Style, format and types only
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .
	@$(VENV_PYTHON) -m mypy --strict

audit: setup ## Installed packages against the lock, offline; SBOM (ONLINE=1: pip-audit, too)
	@PYTHONPATH=deploy $(VENV_PYTHON) deploy/audit.py $(if $(ONLINE),--online)

lock: setup ## Write the locks anew from pyproject.toml (UPGRADE=1: newest versions)
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(COMPILE) pyproject.toml --extra lab --group dev --group audit --group build \
		--output-file requirements.lock
	@$(COMPILE) --group peers --output-file tests/benchmarks/peers.lock

up: setup ## Start Kafka and Redis in the background; in a shell: eval "$(make up)"
	@$(LOCAL).servers up

down: ## Stop what `make up` started
	@$(LOCAL).servers down

clean: down ## Remove what the other commands made: .venv, .servers with its data, caches
	@rm -rf .venv .servers build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
