# Everything happens in .venv, which is made once and brought up to date when pyproject.toml changes.
# Needs python3 (3.11 or newer) with venv, make and git; the tests that need more say what.
VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
PYTEST_FLAGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test test-matrix fetch check bench readme clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo         audit nine hosts made on this machine, and print the table'
	@echo 'make test         fetch the small packages and run the tests'
	@echo 'make test-matrix  fetch all packages and run the end-to-end tests over every one'
	@echo 'make check        ruff, mypy, import-linter'
	@echo 'make bench        CPU and memory of the command and of the program on the host'
	@echo 'make readme       write the output of the demo into README.md'

$(VENV)/.made:
	@test -n '$(PYTHON)' || { echo 'error: no python3 of 3.11 or newer was found' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo 'Installing fleetcheck into $(VENV); the first time this takes about a minute.'
	$(PIP) install --editable .
	@touch $@

# pip knows dependency groups since 25.1; Debian 12 brings 23.0.
$(VENV)/.developed: $(VENV)/.installed pyproject.toml
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install --group dev
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/fleetcheck demo
	@echo
	@echo 'Next: . $(BIN)/activate; fleetcheck rules env-edited; then docs/quickstart.md, section 2.'

fetch: $(VENV)/.developed
	$(BIN)/python tests/support/fetch.py

test: fetch
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(PYTEST_FLAGS)

test-matrix: $(VENV)/.developed
	$(BIN)/python tests/support/fetch.py --all
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --all-packages $(PYTEST_FLAGS) tests/e2e/test_e2e_matrix.py tests/e2e/test_e2e_layout_installs.py tests/e2e/cron_daemon.py

check: $(VENV)/.developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.developed
	@for script in $(filter-out benchmarks/real_gpu.py benchmarks/imported.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

readme: $(VENV)/.developed
	$(BIN)/python tests/support/readme.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
