# Each target sets itself up: Python 3.11 or newer is all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
HEAVY := $(VENV)/.installed-heavy

.PHONY: demo test test-heavy check lint types docs clean

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

$(HEAVY): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,rl]'
	touch $(HEAVY)

demo: $(STAMP)  ## optimize the demo program on a local model
	$(BIN)/gepa-lite demo

test: $(STAMP)  ## all tests but the heavy ones
	$(BIN)/python -m pytest -n auto -m "not heavy and not local_model"

test-heavy: $(HEAVY)  ## what runs a real model, or needs torch, a browser or MLflow
	$(BIN)/python -m pytest -m "heavy or local_model"

lint: $(STAMP)  ## style, and imports that go one way
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

check: lint types test

docs: $(STAMP)  ## the API reference, as HTML under build/docs
	$(BIN)/pdoc gepa_lite -o build/docs

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
