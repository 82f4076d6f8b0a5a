# `make` alone tells every command. Set-up is a step of each command that needs it.

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
LOCAL := PYTHONPATH=deploy/tools $(PYTHON) -m local
ASYNCAPI := $(CURDIR)/.servers/asyncapi
ASYNCAPI_PARSER := 3.6.3
COMPILE := $(VENV_PYTHON) -m uv pip compile --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) --quiet

# As many processes as tests/conftest.py says. Each takes one file at a time, the long ones first.
PARALLEL := -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
PYTEST := $(VENV_PYTHON) -m pytest $(PARALLEL)
# A choice by ARGS may leave nothing of a part.
NONE := $(if $(ARGS),|| [ $$? = 5 ])
# All test files with servers are below these.
WITH_SERVERS := tests/integration tests/contract
# The times of each run are kept.
KEPT := build/tests

# Bytecode is kept, that of the tests, too: without it each process compiles all of them anew.
unexport PYTHONDONTWRITEBYTECODE

# Of bench, bench-stream, bench-serve, bench-standalone, bench-index, bench-games, bench-ablation, chaos and soak: WRITE=1 keeps
# the figures in docs/benchmarks.jsonl and writes them into the tables, too.
WRITTEN := $(if $(WRITE),--write)

.DEFAULT_GOAL := help
.PHONY: help setup python packages service servers demo check test test-all eighth docs bench bench-stream figure
.PHONY: lint style dist lock chart
.PHONY: contract reference pictures bench-serve bench-standalone bench-index bench-games bench-ablation evidence contract-check image-check image compose kubernetes
.PHONY: chaos soak stores brokers tables audit up down clean clean-data

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install all: .venv, Redis, Prometheus, Java, Kafka, Chromium, Helm, Toxiproxy (once)
	@$(LOCAL).setup all

servers: # without what Go builds: that takes some minutes, and only `make test` and chaos need it
	@$(LOCAL).setup

service: # Redis, Kafka, and in .venv only what the service and the demo need
	@$(LOCAL).setup service

python: # only .venv, with only what the service and the demo need
	@$(LOCAL).setup python

packages: # only .venv, with all packages
	@$(LOCAL).setup packages

demo: ## A season through one process, and its living page (SERVERS=1: through real Kafka and Redis; ARGS=...)
ifdef SERVERS
	@$(LOCAL).setup service
	@PYTHONPATH=deploy $(VENV_PYTHON) deploy/tools/demo.py $(ARGS)
else
	@began=$$(date +%s.%N) && $(LOCAL).setup python && exec $(VENV_PYTHON) -m stream_rater demo --began $$began $(ARGS)
endif

check: style ## Style, types, and all tests without servers (ARGS="-k name")
	@mkdir -p $(KEPT)
	@$(VENV_PYTHON) -m mypy --strict >$(KEPT)/types.txt 2>&1 & types=$$!; \
	$(PYTEST) -m "not integration and not slow" --junitxml=$(KEPT)/check.xml $(ARGS) $(NONE); tests=$$?; \
	wait $$types || { cat $(KEPT)/types.txt; exit 1; }; exit $$tests

test: setup check ## `make check`, and all promises on real Kafka and Redis (ARGS="-k name")
	@$(PYTEST) $(WITH_SERVERS) -m "integration and not slow" --junitxml=$(KEPT)/test.xml $(ARGS) $(NONE)

test-all: setup check ## `make check`, and all other tests: whole programs and variations, too
	@$(PYTEST) -m "integration or slow" --junitxml=$(KEPT)/all.xml $(ARGS) $(NONE)

eighth: setup ## An eighth of what only `make test-all` has (N=0 to 7; without it, this commit's)
	@$(PYTEST) -m slow --eighth $(or $(N),commit) --junitxml=$(KEPT)/eighth.xml $(ARGS) $(NONE)

docs: ## Build the site of docs/ into build/docs, links checked (ARGS=serve: show it)
	@$(LOCAL).docs $(ARGS)

bench: servers ## Benchmarks: one JSON object a line on standard output (ARGS=..., WRITE=1)
	@$(LOCAL).peers
	@$(VENV_PYTHON) -m tests.benchmarks $(ARGS) $(WRITTEN)

bench-stream: servers ## The service under load: rate, cost, latency (ARGS=lobby5, WRITE=1)
	@$(LOCAL).peers
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m tests.benchmarks.stream $(ARGS) $(WRITTEN)

bench-serve: servers ## How fast the API answers beside a worker at work (ARGS=--quick, WRITE=1)
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m tests.benchmarks.reading $(ARGS) $(WRITTEN)

bench-standalone: servers ## The standalone process and posts of rounds, beside the service (WRITE=1)
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m tests.benchmarks.standalone $(ARGS) $(WRITTEN)

bench-index: packages ## How fast the index takes events in, and answers (ARGS=--quick: 1,000,000 players; WRITE=1)
	@$(VENV_PYTHON) -m tests.benchmarks.indexing $(ARGS) $(WRITTEN)

bench-games: packages ## All systems and other packages on real games, by default and tuned (ARGS="--file PATH", WRITE=1)
	@$(LOCAL).peers
	@$(VENV_PYTHON) -m tests.benchmarks.games $(ARGS) $(WRITTEN)

bench-ablation: packages ## What each part of two-moment, of tuning and of calibration gains (ARGS=..., WRITE=1)
	@$(VENV_PYTHON) -m tests.benchmarks.ablation $(ARGS) $(WRITTEN)

evidence: packages ## The experiments of the Elo-MMR paper, and systems on games (ARGS="FOLDER --quick")
	@$(VENV_PYTHON) -m tests.benchmarks.lab $(ARGS)

soak: servers ## Fuzz the decoder and simulate faults at length (SEEDS=N, MINUTES=M, WRITE=1)
	@$(VENV_PYTHON) -m tests.simulation.soak \
		$(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS) $(WRITTEN)

chaos: servers ## Break real servers and workers, compare every rating; needs Go (ARGS=rolling, UNTIL=N: go on, WRITE=1)
	@$(LOCAL).go_tools toxiproxy
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m tests.chaos \
		$(if $(UNTIL),--until $(UNTIL)) $(if $(LEDGER),--ledger $(LEDGER)) $(ARGS) $(WRITTEN)

stores: servers ## Test other stores (Redis 8, Valkey ...): a table of stores and suites (ARGS=valkey, WRITE=1)
	@$(LOCAL).setup stores
	@$(LOCAL).go_tools toxiproxy
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m tests.matrix stores $(ARGS) $(WRITTEN)

brokers: servers ## Test other releases of Kafka: a table of releases and suites (ARGS=3.9.1, WRITE=1)
	@$(LOCAL).go_tools toxiproxy
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m tests.matrix brokers $(ARGS) $(WRITTEN)

tables: servers ## Write the tables of documents anew, and build/benchmarks-full.md (FROM=FILE ARGS="--commit C": add a saved run)
	@$(VENV_PYTHON) -m tests.benchmarks.document $(FROM) $(ARGS)

figure: servers ## A season under a real Prometheus, and its dashboard drawn (ARGS=...)
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m watching $(ARGS)

pictures: servers ## The page of `serve` and notebooks, into docs/pictures; Chromium (ARGS=notebook)
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m tests.pictures $(ARGS)

lint: style ## Style, format and types only
	@$(VENV_PYTHON) -m mypy --strict

style: packages # without the types
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .

audit: servers ## Installed packages against the lock, offline; SBOM (ONLINE=1: pip-audit, too)
	@PYTHONPATH=deploy/tools $(VENV_PYTHON) deploy/tools/audit.py $(if $(ONLINE),--online)

dist: python ## Wheels, pure and with kernels for each Python, and the source package: build/dist
	@PYTHONPATH=deploy/tools $(VENV_PYTHON) deploy/tools/dist.py

lock: python ## Write the locks anew from pyproject.toml (UPGRADE=1: newest versions)
	@$(COMPILE) pyproject.toml --extra service --extra serve --extra arrow --extra lab --extra dask --extra tracing \
		--group dev --group audit --group build --output-file requirements.lock
	@$(COMPILE) pyproject.toml --extra service --extra serve --extra lab --group build --constraints requirements.lock \
		--output-file deploy/service.lock
	@$(COMPILE) --group peers --output-file tests/benchmarks/peers.lock
	@$(COMPILE) --group stores --output-file tests/stores.lock
	@$(COMPILE) --group docs --output-file deploy/docs.lock
	@$(COMPILE) pyproject.toml --extra service --extra serve --extra otlp --constraints requirements.lock \
		--output-file deploy/image.lock
	@$(COMPILE) --group build --group audit --constraints requirements.lock \
		--output-file deploy/build.lock

contract: servers ## Write the events' contract, deploy/asyncapi.yaml, anew
	@PYTHONPATH=deploy/tools $(VENV_PYTHON) deploy/tools/event_contract.py

reference: packages ## Write the tables of docs/reference and the API's document anew, from the code
	@PYTHONPATH=deploy/tools:deploy:. $(VENV_PYTHON) deploy/tools/api_examples.py > /dev/null
	@PYTHONPATH=deploy/tools:. $(VENV_PYTHON) deploy/tools/reference.py

contract-check: $(ASYNCAPI)/parser-$(ASYNCAPI_PARSER) ## Parse it by AsyncAPI's own parser (npm)
	@node deploy/tools/parse_contract.mjs $(ASYNCAPI) deploy/asyncapi.yaml

$(ASYNCAPI)/parser-$(ASYNCAPI_PARSER): # the stamp of an installation that went well
	@npm install --silent --ignore-scripts --no-audit --no-fund --prefix $(ASYNCAPI) \
		@asyncapi/parser@$(ASYNCAPI_PARSER)
	@touch $@

image-check: servers ## Run the commands of deploy/Dockerfile in a folder (ARCH=arm64: compare an emulator's bits; root)
	@PYTHONPATH=.:deploy:deploy/tools $(VENV_PYTHON) -m $(if $(ARCH),containers.$(ARCH),tests.image) $(ARGS)

image: packages ## Build deploy/Dockerfile with podman or docker and check what it runs (root, BASE=…, WRITE=1)
	@PYTHONPATH=.:deploy:deploy/tools $(VENV_PYTHON) -m containers image $(WRITTEN)

compose: servers ## Run deploy/compose.yaml, a season through it, compare every rating (root, WRITE=1)
	@PYTHONPATH=.:deploy:deploy/tools $(VENV_PYTHON) -m containers compose $(WRITTEN)

kubernetes: servers ## The chart on a real Kubernetes of one node (root, Go; long at first; WRITE=1)
	@PYTHONPATH=.:deploy:deploy/tools $(VENV_PYTHON) -m containers kubernetes $(WRITTEN)

chart: setup ## Write the Helm chart's README and the tests' renders anew
	@PYTHONPATH=deploy:deploy/tools $(VENV_PYTHON) -m tests.helm

up: $(if $(WITH),servers,service) ## Start Kafka and Redis in the background (WITH=prometheus); in a shell: eval "$(make up)"
	@$(LOCAL).servers up $(WITH)

down: ## Stop what `make up` started; the data stay
	@$(LOCAL).servers down

clean-data: ## Stop what `make up` started, and delete its data: the next one begins with nothing
	@$(LOCAL).servers clean-data

clean: down ## Remove what the other commands made: .venv, .servers with its data, caches
	@rm -rf .venv .servers build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
