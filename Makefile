# `make demo` and `make test` do all the set-up: they need Python ≥ 3.11 with venv, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: install demo test lint format clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	# A CPU build of torch brings no Triton; with it, the kernels' tests run in its interpreter. Without it they are skipped.
	-$(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/python -m pip install --quiet 'triton==3.6.0'
	touch $@

PAIR := src/gocor/assets/reference.jpg src/gocor/assets/query.jpg

demo: $(READY)
	$(BIN)/gocor demo --output demo-output/module
	$(BIN)/gocor match $(PAIR) --output demo-output/match --overwrite

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) demo-output dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
