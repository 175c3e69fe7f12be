# The same commands for a person and for CI. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -n $(or $(WORKERS),$(1),3) --dist worksteal

.PHONY: help install browser check lint types test test-all ci snapshots site accept model demo soak worlds xla lowest clean

help:            ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'

$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade pip  # an old one resolves for minutes
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

install: $(BIN)/.installed   ## a virtual environment with everything the tests need

browser: install   ## a Chromium for the dashboard's tests, where there is none
	@$(BIN)/python -m tests.app.dashboard.chromium >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	       && apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core >/dev/null; } \
	  || $(BIN)/python -m playwright install chromium-headless-shell
	@$(BIN)/python -m tests.app.dashboard.chromium

check: lint types   ## lint and types

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

test: install    ## unit tests, and the contract on memory and a local folder (about a minute)
	$(PYTEST) -m "not slow" -o tmp_path_retention_policy=failed

test-all: install browser  ## every test: also real processes, random kills, the demonstration, every command of the docs
	$(call PYTEST,4) --durations 20

ci: lint         ## what has to be green: installs, lints, types, tests, runs
	$(MAKE) --no-print-directory -j 2 types site test-all

snapshots: install  ## write pinned output and the documentation's again (tests/pinned.py); look at the diff
	$(BIN)/python -m pytest --snapshot-update tests/reports/test_golden.py tests/app/terminal tests/app/cloud tests/acceptance/test_docs.py

site: install    ## the documentation as a site with search, in .site/html; a link that leads nowhere fails
	$(BIN)/python scripts/site.py

accept: install  ## the proofs that take too long for CI, recorded in docs/records (hours); PROOFS="kills model" chooses
	$(BIN)/python -m tests.accept $(PROOFS)

soak: install    ## 500 random kills in real processes, 20,000 seeds of the simulation, 1,000 examples (hours)
	$(BIN)/python -m pytest --hypothesis-profile soak -n auto --dist worksteal -m "not slow" --timeout 0
	RELAY_KILLS=500 $(BIN)/python -m pytest tests/processes/test_random_kills.py
	RELAY_KILLS=100 $(BIN)/python -m pytest --timeout 0 tests/storage/remote/test_kills.py tests/storage/s3/test_parts.py
	RELAY_RACES=400 $(BIN)/python -m pytest --timeout 0 tests/storage/remote/test_races.py
	RELAY_SIM_SEEDS=20000 $(BIN)/python -m pytest -n auto --dist worksteal tests/simulation

worlds: install  ## fresh worlds of the simulation, other ones every day; WORLDS=2000 chooses how many
	RELAY_SIM_FIRST=$$(date +%Y%m%d)000000 RELAY_SIM_SEEDS=$(or $(WORLDS),1000) \
	  $(BIN)/python -m pytest -n auto --dist worksteal tests/simulation/test_simulation.py -k invariant

xla:             ## the step on PyTorch/XLA's CPU client, in an environment of its own (7 GB)
	@test -e .venv-xla/.installed || { $(PYTHON) -m venv .venv-xla && .venv-xla/bin/python -m pip install -q \
	  torch==2.9.0 torch_xla==2.9.0 -e ".[train]" hypothesis pytest pytest-timeout pytest-xdist syrupy; }
	@touch .venv-xla/.installed
	PJRT_DEVICE=CPU .venv-xla/bin/python -m pytest --timeout 1200 tests/xla/proofs.py

model: install   ## the protocol's model within larger bounds, one on each core (docs/contributing/model-search.md)
	RELAY_MODEL=large $(BIN)/python -m pytest tests/model/test_model.py -k every_invariant -s -n auto --timeout 0

demo: install    ## two accounts, one run, one SIGKILL, the same bytes
	$(BIN)/python rotate_accounts.py demo

EXTRAS = $(foreach extra,train dashboard plot wandb tensorboard trackio dropbox drive s3 hf,--extra $(extra))
LOWEST = .venv-lowest
LOWEST_UV = $(LOWEST)/bin/uv

# First what users install; then the tests' own packages around that. Old packages warn on a new Python: no error here.
# Not for this environment: the record itself, paths and choices of fused kernels (triton 3.4, with torch 2.8).
NOT_LOWEST = tests/test_lowest.py tests/frozen/test_compared.py::test_paths_on_a_gpu \
  tests/frozen/test_compared.py::test_paths_on_hopper
lowest:          ## the lowest version of each dependency: installs, tests and records them (after a change of pyproject.toml)
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install -q --disable-pip-version-check uv
	rm -f $(LOWEST)/*.txt
	$(LOWEST_UV) pip compile -q --resolution lowest-direct $(EXTRAS) pyproject.toml -o $(LOWEST)/lowest.txt
	$(LOWEST_UV) pip compile -q --resolution lowest-direct --override $(LOWEST)/lowest.txt --extra dev pyproject.toml \
	  -o $(LOWEST)/tests.txt
	$(LOWEST_UV) pip install -q --python $(LOWEST)/bin/python --no-deps -r $(LOWEST)/tests.txt -e .
	$(LOWEST)/bin/python -m pytest -n $(or $(WORKERS),3) --dist worksteal -m "not slow" -W default \
	  -o filterwarnings=default $(foreach test,$(NOT_LOWEST),--deselect $(test)) --ignore tests/trm/test_choosing.py
	$(LOWEST)/bin/python -m tests.lowest

clean:           ## remove what make made
	rm -rf .site .cache $(VENV) $(LOWEST) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
