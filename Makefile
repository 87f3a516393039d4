# Every target does the set-up that it needs; the second run starts in seconds.
SHELL := /bin/bash
.DELETE_ON_ERROR:
export UV_PYTHON_DOWNLOADS := never
export PYTHONDONTWRITEBYTECODE :=

PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
  command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info < (3,14))' 2>/dev/null && { echo $$p; break; }; done)
UV_VERSION := 0.13.8
UV := .local/uv/bin/uv
RUN := .venv/bin/python

.PHONY: env
env: .local/stamps/python

.local/uv/bin/uv:
	@test -n "$(PYTHON)" || { echo "fairbox: Python 3.11, 3.12 or 3.13 is missing: apt-get install python3 python3-venv"; exit 1; }
	@echo "fairbox: installing uv $(UV_VERSION) into .local/uv"
	@$(PYTHON) -m venv .local/uv || { echo "fairbox: python's venv module is missing: apt-get install python3-venv"; exit 1; }
	@.local/uv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.local/stamps/python: requirements.lock pyproject.toml layers/fairbox/pyproject.toml pipeline/pyproject.toml simulation/pyproject.toml | .local/uv/bin/uv
	@echo "fairbox: installing the locked Python environment into .venv"
	@test -x .venv/bin/python || $(UV) venv --quiet --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --python .venv --require-hashes requirements.lock
	@$(UV) pip install --quiet --python .venv --no-deps --editable layers/fairbox --editable pipeline --editable simulation
	@mkdir -p .local/stamps && touch $@

.PHONY: lock
lock: .local/uv/bin/uv
	@scripts/lock.sh

.PHONY: engines
engines: env
	@$(RUN) scripts/engines.py

.PHONY: up
up: engines
	@$(RUN) -m local up

.PHONY: down
down: env
	@$(RUN) -m local down

FOLDER ?=

.PHONY: export
export: env
	@$(RUN) -m local export $(if $(FOLDER),--folder $(FOLDER))

.PHONY: pipeline-package
pipeline-package: env
	@$(RUN) scripts/package_pipeline.py

BENCH ?=

.PHONY: bench
bench: engines
	@$(RUN) -m benchmarks $(BENCH)

# known vulnerabilities of what is locked; 2: nobody could be asked
.PHONY: audit
audit: env
	@$(RUN) scripts/audit.py

CONTEXT ?=

.PHONY: synth
synth: env
	@$(RUN) app.py $(CONTEXT)
	@echo "fairbox: the templates of every stack are in cdk.out"

CDK_VERSION := 2.1148.1
CDK := .local/cdk/node_modules/.bin/cdk
NODE_BIN = $$($(RUN) -c 'from stacks.node import bin_folder; print(bin_folder())')

$(CDK): | .local/stamps/python
	@echo "fairbox: installing the CDK command line $(CDK_VERSION) into .local/cdk"
	@node="$(NODE_BIN)" && PATH="$$node:$$PATH" \
	  node "$$node/../lib/node_modules/npm/bin/npm-cli.js" install \
	  --silent --no-audit --no-fund --no-save --prefix .local/cdk aws-cdk@$(CDK_VERSION)

YES ?=
ADOPT ?=

.PHONY: deploy
deploy: env $(CDK)
	@PATH="$(NODE_BIN):$$PATH" $(RUN) scripts/deploy.py --cdk $(CDK) $(CONTEXT) \
	  $(if $(YES),--yes) $(if $(ADOPT),--adopt)

MESSAGES ?= 10000000
BATCHES ?= 1000000
SEED ?= 0
SCENARIOS := whole delivery ordered resizing riding
# so many worlds each, of their natural size
LOADED_SEEDS ?= 200
LOADED := backlog latency rates payloads tenants attempts overdue adding

.PHONY: simulate
simulate: env
	@share=$$(($(MESSAGES) / $(words $(SCENARIOS)))); broken=0; \
	for scenario in $(SCENARIOS); do \
	  .venv/bin/fairbox simulate --scenario $$scenario --seed $(SEED) --messages $$share || broken=1; \
	done; \
	for scenario in $(LOADED); do \
	  .venv/bin/fairbox simulate --scenario $$scenario --seed $(SEED) --seeds $(LOADED_SEEDS) || broken=1; \
	done; \
	.venv/bin/fairbox simulate --scenario batches --seed $(SEED) --messages $(BATCHES) || broken=1; \
	exit $$broken

N ?=

.PHONY: demo
demo: engines
	@$(RUN) -m local.demo $(if $(N),-n $(N))

CASES ?= 10000
SEED ?=
URL ?=

.PHONY: fuzz-api
fuzz-api: env
	@$(RUN) -m tests.fuzz --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(if $(URL),--url $(URL))

MINUTES ?= 10

.PHONY: fuzz
fuzz: env
	@$(RUN) -m tests.fuzz.guided --minutes $(MINUTES)

.PHONY: lint
lint: env
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check --quiet .
	@$(RUN) scripts/check_prose.py
	@.venv/bin/lint-imports --no-cache
	@.venv/bin/mypy

# twice as many as cores: they wait for engines and for the functions' processes
WORKERS ?= 4
PYTEST = .venv/bin/pytest -n $(WORKERS) --no-loadscope-reorder
CHOSEN = $(FOLDER) $(if $(K),-k "$(K)")

# what decides, here and in CI; K=expression or FOLDER=tests/x: those tests alone, the night's included
.PHONY: test
test: engines lint
	@$(PYTEST) $(if $(K)$(FOLDER),$(CHOSEN),-m "not extended")

# the night: everything; K and FOLDER as above
.PHONY: test-all
test-all: engines lint
	@$(PYTEST) $(CHOSEN)

# neither an engine nor a JVM
.PHONY: test-unit
test-unit: env
	@$(PYTEST) tests/unit $(if $(K),-k "$(K)")

MINUTES ?= 10
SEED ?=
RATE ?=

.PHONY: chaos
chaos: engines
	@$(RUN) -m local.chaos run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(RATE),--rate $(RATE))

.PHONY: soak
soak: engines
	@$(RUN) -m local.soak --minutes $(MINUTES) $(if $(RATE),--rate $(RATE)) $(if $(SEED),--seed $(SEED))

SETTING ?=

# deployment on paper: every setting, the upgrade from the last release and its roll-back
.PHONY: rehearse
rehearse: env
	@$(RUN) -m scripts.rehearsal $(if $(SETTING),--setting $(SETTING))
