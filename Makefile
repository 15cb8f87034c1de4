# Two commands serve a newcomer: `make sweep` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: sweep test rigs format clean

sweep: .venv/embedded
	$(BIN)/tuner sweep examples/embedded.yaml

test: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

# Real engines for the tests marked `rig`, each in a venv under ~/.cache/tuner/rigs ($TUNER_RIGS); minutes once.
rigs: .venv/python
	$(BIN)/python -m tests.rigs.build

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv

.venv/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

.venv/embedded: .venv/python pyproject.toml
	$(PIP) --editable '.[embedded]'
	touch $@

.venv/dev: .venv/python pyproject.toml
	$(PIP) --editable '.[embedded,dev]'
	touch $@ .venv/embedded
