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
.PHONY: help demo test test-all test-torch perf dev lint format wheel clean

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
	@for version in $(OTHERS); do $(MAKE) test-torch TORCH=$$version || exit 1; done

# What depends on PyTorch most, under another release of it, in an environment beside
# $(VENV). A release that pip does not provide is left out, and said to be.
OTHERS  := 2.11.0 2.14.0
TORCH   ?= $(firstword $(OTHERS))
OTHER   := $(VENV)-torch-$(TORCH)
BESIDE  := private private_names ops autograd tangents transforms override \
           override_modes dynamo inplace composite matrix checkpoints foreign

test-torch: ## some of the quick tests under another PyTorch: TORCH=2.11.0
	@if [ ! -f $(OTHER)/.ready ]; then \
		echo "Setting up $(OTHER)."; \
		$(PYTHON) -m venv $(OTHER) && \
		grep -vE '^(torch|triton|setuptools)==' constraints.txt \
			> $(OTHER)/constraints.txt && \
		if ! $(OTHER)/bin/python -m pip download -qq --no-deps --no-cache-dir \
			--dest $(OTHER)/wheels torch==$(TORCH); then \
			echo "torch $(TORCH): skipped, pip does not provide it here"; \
			exit 0; \
		fi; \
		$(OTHER)/bin/python -m pip install -qq --disable-pip-version-check \
			-c $(OTHER)/constraints.txt --find-links $(OTHER)/wheels \
			torch==$(TORCH) -e '.[test]' && \
		rm -r $(OTHER)/wheels && touch $(OTHER)/.ready || exit 1; \
	fi; \
	$(OTHER)/bin/python -m pytest -n auto --maxprocesses 8 --dist worksteal \
		-m "not slow and not gpu" $(BESIDE:%=tests/test_%.py)

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
