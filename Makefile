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

.local/stamps/python: requirements.lock pyproject.toml layers/fairbox/pyproject.toml | .local/uv/bin/uv
	@echo "fairbox: installing the locked Python environment into .venv"
	@test -x .venv/bin/python || $(UV) venv --quiet --python $(PYTHON) .venv
	@$(UV) pip sync --python .venv --require-hashes --compile-bytecode requirements.lock
	@$(UV) pip install --quiet --python .venv --no-deps --editable layers/fairbox
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
