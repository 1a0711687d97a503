# `make demo`, `make test`, `make test-all` and `make docs` do all their own set-up in .venv.

PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports; to compile all of TensorFlow takes as long as to unpack it.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
TEST := $(BIN)/python -m pytest -n 2 --no-loadscope-reorder

.PHONY: demo test test-all lint docs browser clean

demo: $(VENV)/.installed
	$(BIN)/keras-transformer demo

test: $(VENV)/.installed-test
	$(TEST) -m "not slow"

test-all: $(VENV)/.installed-test-all
	$(TEST)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "built site/index.html; with search: $(BIN)/mkdocs serve"

# The tests of pages use a browser where there is one; this brings it to Debian and Ubuntu.
browser:
	@command -v chromium chromium-browser google-chrome || { $(SUDO) apt-get update --quiet && \
		$(SUDO) apt-get install --yes --no-install-recommends chromium; }

clean:
	rm -rf $(VENV) site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.py | $(BIN)/python
	$(INSTALL) .
	touch $@

$(VENV)/.installed-test: setup.py | $(BIN)/python
	$(INSTALL) ".[test]"
	touch $@ $(VENV)/.installed

$(VENV)/.installed-test-all: setup.py | $(BIN)/python
	$(INSTALL) ".[test-all]"
	touch $@ $(VENV)/.installed $(VENV)/.installed-test

$(VENV)/.installed-docs: setup.py | $(BIN)/python
	$(INSTALL) ".[docs]"
	touch $@ $(VENV)/.installed
