# Everything a person or CI types. Each target makes its own environment: nothing has to be installed first
# but Python >= 3.10, make and a package index.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Tests start hundreds of processes; where PYTHONDONTWRITEBYTECODE is set, each would compile what it imports.
COMPILE := $(BIN)/python -m compileall -q src

.DEFAULT_GOAL := help
.PHONY: help demo demo-search demo-cluster test quick check docs promises ui bench clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "$(PYTHON) is older than Python 3.10. Name a newer one, for example: make demo PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (the first time takes a few minutes) ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## Train a real model, interrupt it, resume it, and prove that nothing changed
	@DET_HOME=demo-output $(BIN)/python examples/demo.py

demo-search: $(READY)  ## Search among 16 networks on two slots, stop the weak ones early, and show what that saved
	@DET_HOME=demo-output $(BIN)/python examples/demo_search.py

demo-cluster: $(READY)  ## Search on three Ray nodes and PostgreSQL, kill a node half-way, and check that nothing is lost
	@DET_HOME=demo-output $(BIN)/python examples/demo_cluster.py

test: $(READY)  ## Run all tests
	@$(COMPILE)
	$(BIN)/python -m pytest -n 2 --dist loadfile

quick: $(READY)  ## Run the tests that take no more than seconds
	@$(COMPILE)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

check: $(READY)  ## Lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## Check links, code shown from examples, and the page of promises
	$(BIN)/python tools/check_docs.py
	$(BIN)/python tools/promises.py --check

promises: $(READY)  ## Write docs/promises.md from the docstrings of the tests
	$(BIN)/python tools/promises.py

ui: $(READY)  ## Build the page into src/determined/server/webui, and run its own tests
	$(BIN)/python tools/webui.py

bench: $(READY)  ## Measure, as ratios against hand-written code
	@for file in bench/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
