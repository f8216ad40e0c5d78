# Every target starts from an empty clone: what it needs is set up first, once, in $(VENV).
# Other interpreters and places: make test PYTHON=python3.12 VENV=../venv

PYTHON ?= python3
VENV   ?= .venv

BIN     := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
PYTEST  := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal
RUN     := $(VENV)/.ready
DEVELOP := $(VENV)/.ready-dev

.DEFAULT_GOAL := help
.PHONY: help demo test test-all perf dev lint format wheel clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(RUN) ## the tour: what the formulas turn into, and how fast it runs here
	@$(BIN)/python -m atentriton demo

test: $(RUN) ## the quick tests, in Triton's interpreter too
	$(PYTEST) -m "not slow and not gpu"
	TRITON_INTERPRET=1 $(PYTEST) -m "interpreter and not slow"

test-all: $(RUN) ## every test that this machine can run
	$(PYTEST)
	TRITON_INTERPRET=1 $(PYTEST) -m interpreter

perf: $(RUN) ## every measurement in perf/ that this machine can make: tables, JSON, pictures
	@for script in perf/[!_]*.py; do \
		$(BIN)/python "$$script" || \
		{ [ $$? = 2 ] && [ "$$script" = perf/gpu.py ]; } || exit 1; \
	done

dev: $(DEVELOP) ## the tools for working on the source

lint: $(DEVELOP) ## ruff and pyright
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(DEVELOP) ## the source as ruff would write it
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

wheel: $(RUN) ## a wheel in dist/
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove what was made, but for $(VENV)
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -prune -exec rm -rf {} +

$(RUN): pyproject.toml constraints.txt
	@echo "Setting up $(VENV); PyTorch is large: the first time takes a few minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e '.[test,perf]'
	@touch $@

$(DEVELOP): $(RUN)
	@echo "Adding the development tools to $(VENV)."
	@$(INSTALL) -e '.[dev]'
	@touch $@
