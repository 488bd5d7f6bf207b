# `make demo` and `make test` do all the set-up: they need Python ≥ 3.11 with venv, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRITON := triton==3.6.0

.PHONY: install demo test soak lint format clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	# A CPU build of torch does not depend on Triton, but the kernel tests need it: they run in its interpreter.
	@$(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TRITON)' || \
	if [ "$$(uname -sm)" = "Linux x86_64" ]; then \
	  echo "make: could not install $(TRITON), which the kernel tests need: see pip's message above" >&2; exit 1; \
	else \
	  echo "make: no $(TRITON) for $$(uname -sm): the kernel tests will be skipped" >&2; \
	fi
	touch $@

PAIR := src/gocor/assets/reference.jpg src/gocor/assets/query.jpg

demo: $(READY)
	$(BIN)/gocor demo --output demo-output/module
	$(BIN)/gocor match $(PAIR) --output demo-output/match --overwrite

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal

soak: $(READY)
	$(BIN)/python -m benchmarks.soak

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
