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
ENGINES := $(RUN) scripts/engines.py

# what contributors need: the set-up of `make test`
.PHONY: env
env: .local/stamps/test

.local/uv/bin/uv:
	@test -n "$(PYTHON)" || { echo "fairbox: Python 3.11, 3.12 or 3.13 is missing: apt-get install python3 python3-venv"; exit 1; }
	@echo "fairbox: installing uv $(UV_VERSION) into .local/uv"
	@$(PYTHON) -m venv .local/uv || { echo "fairbox: python's venv module is missing: apt-get install python3-venv"; exit 1; }
	@.local/uv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# made anew with every lock, so that nothing stays that the lock has no longer
.venv/pyvenv.cfg: requirements.lock | .local/uv/bin/uv
	@$(UV) venv --quiet --clear --python $(PYTHON) .venv && touch $@

# each set-up holds what its targets need; the lock gives versions and hashes
LIBRARY := --editable 'layers/fairbox[cli,feeds,functions]'
SETUP_local := $(LIBRARY) --editable stacks --group local
SETUP_demo := $(SETUP_local) --editable pipeline
SETUP_test := $(LIBRARY) --editable stacks --group test --editable pipeline --editable simulation
SETUP_night := $(SETUP_test) --group night

# Spark comes as a source: uv packs its 400 MB of jars only to unpack them
SPARK := --config-settings-package pyspark:--build-option=--compression=stored

.local/stamps/%: .venv/pyvenv.cfg pyproject.toml layers/fairbox/pyproject.toml pipeline/pyproject.toml simulation/pyproject.toml stacks/pyproject.toml
	@echo "fairbox: installing locked packages into .venv (set-up: $*)"
	@$(UV) pip install --quiet --python .venv --constraint requirements.lock $(SPARK) $(SETUP_$*)
	@mkdir -p .local/stamps && touch $@

.PHONY: lock
lock: .local/uv/bin/uv
	@scripts/lock.sh

# at once, since packages and engines wait for the network
.PHONY: engines fetch assembly
engines: .local/stamps/local
	@$(MAKE) --no-print-directory --jobs 2 .local/stamps/demo fetch

fetch: .local/stamps/local
	@$(ENGINES)

assembly: .local/stamps/local
	@$(RUN) -m local synthesise

# TOPIC/SUBSCRIPTION=whsec_..., or several with commas between
WEBHOOK_SECRET ?=

.PHONY: up
up: .local/stamps/local
	@$(ENGINES) --only dynamodb
	@FAIRBOX_LOCAL_WEBHOOK_SECRET="$(WEBHOOK_SECRET)" $(RUN) -m local up

.PHONY: down
down: .local/stamps/local
	@$(RUN) -m local down

FOLDER ?=

.PHONY: export
export: .local/stamps/local
	@$(RUN) -m local export $(if $(FOLDER),--folder $(FOLDER))

.PHONY: pipeline-package
pipeline-package: .local/stamps/local
	@$(RUN) scripts/package_pipeline.py

# wheels, source distributions, a layer and their checksums, into build/dist
.PHONY: dist
dist: .local/stamps/local
	@$(RUN) scripts/release.py dist

.PHONY: release-dry-run
release-dry-run: .local/stamps/local
	@$(RUN) scripts/release.py dry-run

BENCH ?=

.PHONY: bench
bench: env
	@$(ENGINES)
	@$(RUN) -m benchmarks $(BENCH)

# known vulnerabilities of what is locked; it fails, too, when nobody answers
AUDIT = $(RUN) -m pip_audit --require-hashes --disable-pip --progress-spinner off \
  --vulnerability-service osv

.PHONY: audit
audit: .local/stamps/night
	@for lock in layers/dependencies pipeline .; do \
	  $(AUDIT) --requirement $$lock/requirements.lock || exit; \
	done

# the packages of others that functions and jobs are shipped with, as CycloneDX
.PHONY: sbom
sbom: .local/stamps/night
	@mkdir -p build/sbom
	@for lock in layers/dependencies pipeline; do \
	  $(AUDIT) --requirement $$lock/requirements.lock --format cyclonedx-json \
	    --output build/sbom/$$(basename $$lock).cdx.json || exit; \
	done
	@echo "fairbox: build/sbom lists what functions (dependencies) and jobs (pipeline) contain"

CONTEXT ?=
# a file of your own with settings, as a JSON object
SETTINGS ?=
CHOICES = $(CONTEXT) $(if $(SETTINGS),--settings $(SETTINGS))

.PHONY: synth
synth: .local/stamps/local
	@$(RUN) app.py $(CHOICES)
	@echo "fairbox: the templates of every stack are in cdk.out"

NODE_BIN = $$($(RUN) -c 'from fairbox_cdk.node import bin_folder; print(bin_folder())')
NPM = node="$(NODE_BIN)" && PATH="$$node:$$PATH" node "$$node/../lib/node_modules/npm/bin/npm-cli.js"

# npm says nothing but what went wrong
QUIETLY := --loglevel error --no-audit --no-fund

CDK_VERSION := 2.1148.1
CDK := .local/cdk/node_modules/.bin/cdk

$(CDK): | .local/stamps/local
	@echo "fairbox: installing the CDK command line $(CDK_VERSION) into .local/cdk"
	@$(NPM) install $(QUIETLY) --no-save --prefix .local/cdk aws-cdk@$(CDK_VERSION) >/dev/null

# the client of feeds in JavaScript; targets that need its packages first do a set-up, which has Node
JS := clients/js

$(JS)/node_modules: $(JS)/package-lock.json
	@echo "fairbox: installing TypeScript into $(JS)"
	@$(NPM) ci $(QUIETLY) --prefix $(JS) >/dev/null && touch $@

.PHONY: js-package
js-package: .local/stamps/local $(JS)/node_modules
	@mkdir -p build/js
	@$(NPM) run --silent --prefix $(JS) build
	@$(NPM) pack --silent --pack-destination $(CURDIR)/build/js ./$(JS) | sed 's|^|fairbox: packed build/js/|'

YES ?=
ADOPT ?=

.PHONY: deploy
deploy: .local/stamps/local $(CDK)
	@PATH="$(NODE_BIN):$$PATH" $(RUN) scripts/deploy.py --cdk $(CDK) $(CHOICES) \
	  $(if $(YES),--yes) $(if $(ADOPT),--adopt)

TO ?=
EARLIER = .local/releases/$(TO)

# an earlier release has its own code and packages, and its tag is what lies in its folder
.PHONY: rollback
rollback: .local/stamps/local $(CDK)
	@git rev-parse --verify --quiet "refs/tags/$(TO)^{commit}" >/dev/null || \
	  { echo "fairbox: $(if $(TO),there is no tag $(TO),which release? make rollback TO=v0.2.0)"; exit 1; }
	@test -d $(EARLIER) || git worktree add --quiet --detach $(EARLIER) $(TO)
	@git -C $(EARLIER) checkout --quiet --detach $(TO)
	@$(MAKE) --silent --no-print-directory -C $(EARLIER) .local/stamps/local
	@PATH="$(NODE_BIN):$$PATH" $(RUN) scripts/deploy.py --cdk $(CDK) $(CHOICES) \
	  --root $(EARLIER) --backwards $(if $(YES),--yes)

MESSAGES ?= 10000000
SEED ?= 0
SCENARIOS := whole delivery ordered resizing riding
# so many worlds each, of their natural size
LOADED_SEEDS ?= 200
LOADED := backlog latency rates payloads tenants attempts overdue adding

.PHONY: simulate
simulate: env
	@share=$$(($(MESSAGES) / $(words $(SCENARIOS)))); broken=0; \
	for scenario in $(SCENARIOS); do \
	  $(RUN) -m fairbox_simulation --scenario $$scenario --seed $(SEED) --messages $$share || broken=1; \
	done; \
	for scenario in $(LOADED); do \
	  $(RUN) -m fairbox_simulation --scenario $$scenario --seed $(SEED) --seeds $(LOADED_SEEDS) || broken=1; \
	done; \
	exit $$broken

N ?=

.PHONY: announced
announced:
	@test -e .local/stamps/demo || \
	  echo "fairbox: the first run downloads 830 MB into this folder, which takes 1.7 GB then"
	@echo "fairbox: the demo itself takes about a minute and a half on two cores"

.PHONY: demo
demo: announced .local/stamps/local
	@$(MAKE) --silent --no-print-directory --jobs 3 .local/stamps/demo fetch assembly
	@$(RUN) -m local.demo $(if $(N),-n $(N))

WAIT ?=

.PHONY: demo-feeds
demo-feeds: .local/stamps/local
	@$(MAKE) --no-print-directory --jobs 2 fetch assembly
	@$(RUN) -m local.demo.feeds $(if $(WAIT),--wait $(WAIT))

CASES ?= 10000
SEED ?=
URL ?=

.PHONY: fuzz-api
fuzz-api: .local/stamps/night
	@$(RUN) -m tests.fuzz --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(if $(URL),--url $(URL))

.PHONY: lint
lint: env $(JS)/node_modules
	@PATH="$(NODE_BIN):$$PATH" $(JS)/node_modules/.bin/tsc --project $(JS)
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check --quiet .
	@$(RUN) scripts/check_prose.py
	@.venv/bin/lint-imports --no-cache
	@.venv/bin/mypy

# the site, for a browser without network: links, anchors and names of the library are checked
PAGES := build/pages
REDOC = .venv/lib/python*/site-packages/mkdocs_redoc_tag/redoc/javascripts/redoc.standalone.js

.PHONY: site
site: env
	@rm -rf $(PAGES) && mkdir -p $(PAGES)/clients
	@cp -R *.md LICENSE docs examples $(PAGES) && cp clients/feed_vectors.json $(PAGES)/clients
	@cd $(PAGES)/docs/reference && (printf 'const openapi = '; cat openapi.json) > openapi.js
	@sed 's|https://cdn.redoc.ly/[a-z/-]*.svg||' $(REDOC) >$(PAGES)/docs/reference/redoc.standalone.js
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

# twice as many as cores: they wait for engines and for the functions' processes
WORKERS ?= 4
PYTEST = .venv/bin/pytest -n $(WORKERS) --no-loadscope-reorder
CHOSEN = $(FOLDER) $(if $(K),-k "$(K)")

# what decides, here and in CI; K=expression or FOLDER=tests/x: of its tests those alone
.PHONY: test
test: lint site
	@$(ENGINES)
	@$(PYTEST) -m "not extended" $(CHOSEN)

# the night: everything; K and FOLDER as above
.PHONY: test-all
test-all: .local/stamps/night lint site
	@$(ENGINES)
	@$(PYTEST) $(CHOSEN)

# the site, and the code of its pages run
.PHONY: docs
docs: site
	@$(PYTEST) --quiet tests/repository/test_docs.py
	@echo "fairbox: open build/site/index.html"

# neither an engine nor a JVM
.PHONY: test-unit
test-unit: env
	@$(PYTEST) -m "not extended" tests/unit $(if $(K),-k "$(K)")

MINUTES ?= 10
SEED ?=
RATE ?=

.PHONY: chaos
chaos: engines
	@$(RUN) -m local.chaos run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(RATE),--rate $(RATE))
