# `make demo` and `make test` do all the set-up: they need Python ≥ 3.11 with venv, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRITON := triton==3.6.0

.PHONY: install demo test soak fuzz chaos lint format docs release-check lowest audit sbom clean

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

# Reads 12,000 damaged files of every format. Takes some minutes on one core; needs Linux.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --cases 12000

# Kills runs at random moments, fills disks, changes clocks; the tests have a short version. Full disks need the superuser.
chaos: $(READY)
	$(BIN)/python -m tests.chaos

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

LOWEST := $(VENV)-lowest
SMOKE := tests/cli/test_cli.py tests/cli/test_help.py tests/cli/test_match.py tests/cli/test_models.py tests/data/io \
  tests/evaluation/test_reports.py tests/matching/test_options.py tests/models/test_weights.py tests/utils tests/viz

# A subset of the tests with the lowest versions that pyproject.toml allows, in an environment of its own.
lowest:
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) -m tools.lowest > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints.txt --constraint $(LOWEST)/lowest.txt \
	  --editable . pytest hypothesis
	$(LOWEST)/bin/python -m pytest -p no:cacheprovider $(SMOKE)

# Fails if a package has a known vulnerability, and if the database cannot be reached.
audit: $(READY)
	$(BIN)/python -m pip freeze --exclude-editable > $(VENV)/installed.txt
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement $(VENV)/installed.txt || \
	  { echo "make: the audit found something, or could not reach its database: see above" >&2; exit 1; }

sbom: $(READY)
	$(BIN)/python -m tools.sbom > sbom.json
	@echo "wrote sbom.json"

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Builds the package, checks its metadata, and tries the wheel in an empty environment, away from the checkout.
CHECK := build/release-check
release-check: $(READY)
	rm -rf $(CHECK) dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(CHECK)
	$(CHECK)/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd $(CHECK) && unset PYTHONPATH && bin/gocor --version && bin/gocor doctor
	cd $(CHECK) && unset PYTHONPATH && bin/gocor match lib/python*/site-packages/gocor/assets/reference.jpg \
	  lib/python*/site-packages/gocor/assets/query.jpg --output match

clean:
	rm -rf $(VENV) $(LOWEST) sbom.json demo-output dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
