# The same commands for a person and for CI. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help install check test test-all ci demo soak clean

help:            ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'

$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

install: $(BIN)/.installed   ## a virtual environment with everything the tests need

check: install   ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: install    ## unit and contract tests on memory and local stores (2 minutes)
	$(BIN)/python -m pytest -m "not slow"

test-all: install  ## every test, with real processes and real kills
	$(BIN)/python -m pytest

ci: check test-all demo   ## what has to be green: installs, lints, types, tests, runs

demo: install    ## two accounts, one run, one SIGKILL, the same bytes
	$(BIN)/python rotate_accounts.py demo

clean:           ## remove what make made
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
