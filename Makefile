# make demo    the loop on two small jobs            make test    every test
# make check   linters, types, floors, tests         make docs    regenerate the generated pages
# PYTHON=python3.12 chooses the interpreter. TORCH_INDEX=URL-or-folder says where torch comes from.
# Every path is relative: the checkout may lie in a folder with spaces in its name.

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
comma := ,

.PHONY: help demo test check lint docs clean

help:
	@sed -n '1,2s/^# //p;3s/^# //p' Makefile

# $(1): the extras to install. A folder is searched for wheels; anything else is an extra package index.
define install
	@case "$(TORCH_INDEX)" in \
	  "") set -- ;; \
	  *://*) set -- --extra-index-url "$(TORCH_INDEX)" ;; \
	  *) set -- --find-links "$(TORCH_INDEX)" ;; \
	esac; \
	echo "Installing meshwright[$(1)] into $(VENV): about 250 MB to download where torch is a CPU build,"; \
	echo "about 3 GB where it is a CUDA build (the default on Linux; TORCH_INDEX=... chooses, see README.md)."; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$@" -e '.[$(1)]' && \
	$(BIN)/python -m compileall -q src
endef

$(VENV)/created:
	@command -v "$(PYTHON)" >/dev/null || { echo "meshwright needs Python 3.11 or newer; '$(PYTHON)' is not on the PATH. Choose one: make PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "meshwright needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Choose one: make PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@touch $@

$(VENV)/installed-train: $(VENV)/created pyproject.toml constraints.txt
	$(call install,train)
	@touch $@

$(VENV)/installed-dev: $(VENV)/created pyproject.toml constraints.txt
	$(call install,train$(comma)dev)
	@touch $@ $(VENV)/installed-train

demo: $(VENV)/installed-train
	$(BIN)/meshwright tune examples/laptop/job.toml
	$(BIN)/meshwright tune examples/laptop/uneven.toml

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

docs: $(VENV)/installed-dev
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
