# Every target does the set-up it needs. Nothing but Python 3.11 to 3.13, Java 17+ and make has to be there before.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.synced
LINEAGE_STAMP := .venv-lineage/.synced
# LONG=1 is the long form: with the tests marked `long`
LONG ?=
# what goes before a command that computes only where nothing else does
LATER ?=
PYTEST := $(BIN)/python -m pytest $(if $(LONG),,-m "not long")
WEB := src/tidegate/ui/web
BUNDLE := src/tidegate/ui/bundle/tidegate.js
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix $(WEB)

.PHONY: help venv jars sums bundle check test test-all test-fast fast-types fast-unit fast-dags test-unit test-pages test-lineage test-spark test-dags test-integration test-e2e test-chaos pictures chaos chaos-receivers compose-test bench demo up down schema docs site clean

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

venv: $(STAMP) ## .venv with the locked dependencies

# uv is used from PATH, or fetched into a folder of its own: the machine's Python stays as it is
define SYNC
@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo "Tidegate needs Python 3.11, 3.12 or 3.13; name one with make PYTHON=..."; exit 1; }
@uv=$$(command -v uv || true); \
if ! { [ -n "$$uv" ] && "$$uv" --version >/dev/null 2>&1; }; then \
  [ -x .uv/bin/uv ] || { $(PYTHON) -m venv .uv && .uv/bin/pip install --quiet uv; }; uv=.uv/bin/uv; \
fi; \
UV_PROJECT_ENVIRONMENT=$(@D) "$$uv" sync --locked --all-extras --python $(PYTHON)
endef

$(STAMP): pyproject.toml uv.lock
	$(SYNC) --all-groups --no-group lineage --compile-bytecode
	@touch $@

# beside the first one, which brings uv
$(LINEAGE_STAMP): $(STAMP)
	$(SYNC) --all-groups
	@touch $@

jars: venv ## the jars of Spark and of the embedded broker, cached outside the repo
	$(BIN)/tidegate jars

sums: venv ## after a change of an ivy.xml: write the SHA-256 of its jars into jars.sha256
	$(BIN)/tidegate jars --update

bundle: $(BUNDLE) ## the pages of Airflow's UI, without which a checkout has none

# npm is that of the environment: nobody has to install Node
$(WEB)/node_modules: $(STAMP) $(WEB)/package-lock.json
	$(NPM) ci --silent --no-audit --no-fund
	@touch $@

$(BUNDLE): $(WEB)/node_modules $(wildcard $(WEB)/*.ts $(WEB)/*.json $(WEB)/src/*.ts $(WEB)/src/*.tsx)
	$(NPM) run --silent build -- --logLevel warn

check: venv ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(LATER) $(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: jars bundle ## everything that has to be green
	@# three at a time, the longest first: those with servers wait more than they compute, and the others (LATER) compute
	@# whenever these leave a core idle. The jars and the bundle are there by now (-o), or all that need them would begin
	@# last. One that fails does not hide what others find
	$(MAKE) --no-print-directory -o jars -o bundle -j3 --keep-going --output-sync=target LATER="nice -n 19" test-e2e test-chaos test-spark test-integration test-unit test-dags check test-lineage test-pages

test-all: ## the same in its long form: what takes minutes and repeats what shorter tests show
	$(MAKE) --no-print-directory test LONG=1

FAST := --hypothesis-profile=fast --durations=3 -m "not slow"

test-fast: venv ## types, unit tests and DAGs in about a minute: fewer examples of each property, no coverage, none of the slowest
	$(MAKE) --no-print-directory -j2 --keep-going --output-sync=target fast-dags fast-unit fast-types

fast-types: venv
	$(BIN)/mypy

fast-unit: venv
	$(PYTEST) tests/unit $(FAST)

fast-dags: venv
	$(PYTEST) tests/dags $(FAST)

test-unit: venv ## no JVM, no broker, no Airflow; the pure core to the last branch
	$(LATER) $(PYTEST) tests/unit --cov --cov-report=term:skip-covered

test-dags: venv ## every DAG parses with no connection defined
	$(LATER) $(PYTEST) tests/dags

test-pages: bundle ## types and lint of the pages, and what they compute
	$(NPM) run --silent check
	$(NPM) test --silent

test-lineage: $(LINEAGE_STAMP) ## what Airflow's OpenLineage provider is told, which most environments lack
	.venv-lineage/bin/python -m pytest tests/lineage

test-spark: jars ## a classic Spark session, no broker
	$(LATER) $(PYTEST) tests/spark

test-integration: jars ## a real broker and a real Spark Connect server
	$(PYTEST) tests/integration

test-e2e: jars bundle ## the whole demo on a few thousand records
	@# on two platforms: a run of Airflow waits more than it computes
	$(PYTEST) tests/e2e -n 2 --dist loadfile

test-chaos: jars ## kills at each boundary of a batch, of all servers at once, each other kind of fault once; receivers too
	$(PYTEST) tests/chaos

FAULTS ?= 50

chaos: jars ## prove exactly-once by killing things: FAULTS=200 SEED=7
	$(BIN)/python -m tests.chaos.run --faults $(FAULTS) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

chaos-receivers: jars ## prove that receivers lose nothing acknowledged, by killing things: FAULTS=20 SEED=7
	$(BIN)/python -m tests.chaos.receiving.run --faults $(FAULTS) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

compose-test: bundle ## docker-compose.yml by Docker, with every service killed; base images as in docker/.env.example
	@if docker info >/dev/null 2>&1; then $(PYTEST) tests/compose; else echo "skipped: no Docker"; fi

bench: jars bundle ## figures; nothing here passes or fails by time
	$(BIN)/python -m tests.bench.runs
	$(BIN)/python -m tests.bench.throughput
	$(BIN)/python -m tests.bench.growth
	$(BIN)/python -m tests.bench.rate_policies
	$(BIN)/python -m tests.bench.dedupe
	$(BIN)/python -m tests.bench.hours
	$(BIN)/python -m tests.bench.lag_trigger
	$(BIN)/python -m tests.bench.receivers
	$(BIN)/python -m tests.bench.receiver_backpressure
	$(BIN)/python -m tests.bench.yardstick
	$(BIN)/python -m tests.bench.pages

demo: jars bundle ## the main job, end to end, on the embedded platform
	$(BIN)/tidegate demo

up: jars bundle ## start the embedded platform
	$(BIN)/tidegate up

down: venv ## stop it
	$(BIN)/tidegate down

docs: venv ## the pages, and types of TypeScript, that are made from code
	$(BIN)/python -m docs.generate

site: docs ## the docs as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(WEB)/dev/node_modules: $(WEB)/node_modules $(WEB)/dev/package-lock.json
	$(NPM)/dev ci --silent --no-audit --no-fund
	@touch $@

pictures: bundle $(WEB)/dev/node_modules ## those of docs/pages.md, of the pages without Airflow, by CHROMIUM=/usr/bin/chromium
	$(NPM)/dev run --silent pictures
	@# 256 colours, those that are rare as well, are a third of the bytes
	$(BIN)/python -c 'import pathlib, PIL.Image as P; [P.open(f).convert("RGB").quantize(256, P.Quantize.MAXCOVERAGE, dither=P.Dither.NONE).save(f, optimize=True) for f in pathlib.Path("docs/pages").glob("*.png")]'

schema: venv ## the JSON Schemas that editors use for pipelines and receivers
	$(BIN)/tidegate check --schema > dags/pipelines/pipeline.schema.json
	$(BIN)/tidegate check --receiver-schema > dags/receivers/receiver.schema.json

clean: ## stop the platform, remove what make and the platform made here
	-[ ! -x $(BIN)/tidegate ] || $(BIN)/tidegate down
	rm -rf .venv .venv-lineage .uv .tidegate .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage dist
