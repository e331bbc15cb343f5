# Everything starts from nothing: the first target that needs it makes .venv.
PYTHON ?= python3
BIN := .venv/bin
# Pytest rewrites the asserts of all tests, 10 s of a core in each process, unless it may keep what it wrote.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-long quick simulate planted mutations lint types contracts kernels pytest corpus fuzz sanitize gpu docs locks locked image clean

demo: .venv/installed
	$(BIN)/python examples/demo.py

# Quickest answer first, then types beside tests. The tests of the first size cover every feature once.
test: lint contracts
	$(MAKE) --no-print-directory -j 2 types pytest

# A test that failed runs once more, alone: see the plugin. Each run shows the unstable tests of the runs before it.
PYTEST := -m pytest -p tests.support.unstable --durations=15
FORGET := rm -rf .pytest_cache/v/unstable

# Make test; the other tests (the mark "full"), except those that kill or stop workers (the mark "alone"); those; and the
# parity tests of make test once more. In the last two the shared cluster's workers are processes. The timeout ends tests
# that hang.
FULL := $(PYTEST) --timeout=600
test-all: test
	$(BIN)/python $(FULL) -n 2 --dist worksteal -m "full and not long and not alone"
	$(BIN)/python $(FULL) -n 2 --dist worksteal --worker-processes -m "full and not long and alone"
	$(BIN)/python $(FULL) --worker-processes -m "not full" tests/graph/test_parity.py

# What takes long (the mark "long"): soaks, whole matrices, many seeds. None of these tests is in make test-all.
test-long: kernels
	$(FORGET)
	$(BIN)/python $(FULL) -n 2 --dist worksteal -m "long and not alone"
	$(BIN)/python $(FULL) --worker-processes -m "long and alone"
	$(BIN)/python -m tests.planted

# Plays SEEDS games of the service, from FIRST on, in one thread each for both cores: tests/support/simulated.
SEEDS ?= 10000
FIRST ?= 0
simulate: .venv/installed-dev
	$(BIN)/python -m tests.support.simulated $(FIRST) $(SEEDS)

# Plants faults into a copy of the checkout, one after another, and lists those that the tests let through. With WORDS, only
# faults whose file or text has one of these words.
WORDS ?=
planted: kernels
	$(BIN)/python -m tests.planted $(WORDS)

# Draws COUNT faults of FILE and plants them in the same way; all of TESTS, files of tests, are run for each.
COUNT ?= 20
SEED ?= 0
mutations: kernels
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mutations]'
	$(BIN)/python -m tests.planted.drawn $(COUNT) $(SEED) $(FILE) $(TESTS)

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/mypy

# Who may import whom: [tool.importlinter] in pyproject.toml.
contracts: .venv/installed-dev
	$(BIN)/lint-imports --no-logo

# Compiles the CPU kernels once. Otherwise each of the processes below would compile all of them.
kernels: .venv/installed-dev
	$(BIN)/dbfs warm-up

# The tests of the first size that import a module which differs from main, or a neighbour of such a file.
quick: kernels
	$(BIN)/python -m tests.support.quick

# In two processes: half of a test's time is waiting for workers that start.
pytest: kernels
	$(FORGET)
	$(BIN)/python $(PYTEST) -n 2 --dist worksteal

# Builds and traverses the stand-ins for Merrill's graphs at full size; compares them with the paper's figures.
corpus: .venv/installed-dev
	DBFS_FULL_CORPUS=1 $(BIN)/python -m pytest -s tests/edges/generate/test_corpus.py -k test_full_size

# Looks for faults by random examples (the mark "fuzz") for SECONDS, and to the end of the round that is under way then.
# Each round draws other examples. A failing example is kept in .hypothesis, and comes first in the next run.
SECONDS ?= 600
fuzz: .venv/installed-dev
	end=$$(($$(date +%s) + $(SECONDS))); \
	while [ $$(date +%s) -lt $$end ]; do \
	  $(BIN)/python -m pytest -q -m fuzz --hypothesis-profile=fuzz --timeout=900 || exit 1; \
	done

# For a machine with RANKS GPUs, with the extra cu12 or cu13 in .venv: the tests that need GPUs, and the tables of rates and
# of memory.
RANKS ?= 1
gpu: .venv/installed-dev
	$(BIN)/dbfs doctor
	$(BIN)/python -m pytest -m gpu
	$(BIN)/dbfs bench gpu --gpus $(RANKS)
	$(BIN)/dbfs bench gpu --gpus $(RANKS) --predecessors
	$(BIN)/dbfs bench memory --gpus $(RANKS)
	$(BIN)/dbfs graph500 --scale 24 --ranks $(RANKS)

# The kernels under compute-sanitizer, which comes with CUDA's toolkit. racecheck warns of CuPy's own kernels, and of
# kernels that launch others, which it does not follow.
RACECHECK := racecheck --kernel-name-exclude kns=cupy_
sanitize: .venv/installed-dev
	for tool in memcheck "$(RACECHECK)"; do \
	  sanitizer="compute-sanitizer --tool $$tool --error-exitcode 9"; \
	  case $$tool in racecheck*) whole=--whole-blocks; less="--without device-loop --without child-kernels";; esac; \
	  $$sanitizer --target-processes all $(BIN)/python -m tests.search.cuda.sanitize --ranks $(RANKS) $$whole && \
	  $$sanitizer --target-processes all $(BIN)/python -m tests.features.weights.sanitize --ranks $(RANKS) && \
	  $$sanitizer $(BIN)/python -m pytest -q -m gpu tests/search/test_phases.py tests/features/living/test_repair_gpu.py \
	    tests/features/paths/test_pairs_on_gpu.py \
	    tests/features/lab/test_on_grids.py::test_ranks_sort_neighbours_and_contract_bins \
	    tests/features/grid/test_grid_kernels.py::test_a_warp_enlists_for_the_bits_of_a_word && \
	  $$sanitizer $(BIN)/python -m tests.support.lab_checks --small $$less || exit 1; \
	done

# The documentation site, docs/_build/html. Warnings, names and links that lead nowhere are errors.
docs: .venv/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -n -b html docs docs/_build/html

# What CI and the image install, with hashes. Releases that are named there stay until they no longer fit; to take newer
# ones, make UPGRADE=--upgrade locks.
UPGRADE ?=
COMPILE = $(BIN)/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-annotate \
  --custom-compile-command "make locks"
locks: .venv/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --extra dev --extra docs -o locks/dev.txt pyproject.toml
	$(COMPILE) --extra dashboard -o locks/image.txt pyproject.toml
	$(COMPILE) --extra dashboard --extra cu13 --extra nccl-cu13 -o locks/image-cu13.txt pyproject.toml
	$(COMPILE) -o locks/release.txt locks/release.in

# Installs what locks/dev.txt names and nothing else, and dbfs; the targets above then find all that they need.
locked: .venv/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch .venv/installed .venv/installed-dev .venv/installed-docs

# The image of configs/kubernetes, from the wheel of this checkout. For GPUs: make LOCK=image-cu13 image.
LOCK ?= image
IMAGE ?= dbfs
image: .venv/python
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .
	docker build --build-arg LOCK=$(LOCK) -t $(IMAGE) -f configs/kubernetes/Dockerfile .

.venv/python:
	$(PYTHON) -c 'import sys; sys.exit("dbfs needs Python 3.11 or newer; run make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

# pip would compile to bytecode in one process; compileall has one for each core, and leaves out the packages' own
# tests. A package may contain a file that this Python can't compile, so the exit code counts for nothing.
.venv/installed-dev: .venv/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	-$(BIN)/python -m compileall -qq -j 0 -x /tests/ .venv/lib benchmarks dbfs workers
	touch $@

.venv/installed-docs: .venv/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

clean:
	rm -rf docs/_build docs/generated .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
