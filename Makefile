# Two commands: `make demo` and `make test`. Each makes .venv if it is missing, installs, and runs.
# Given on the machine: Python 3.11 or newer, Java 17, make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
# The Spark beside which ttlsnap is developed: the newest that Delta supports.
SPARK := pyspark==4.2.0
# The tests start ttlsnap a thousand times. Without bytecode, each time would compile it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-sparks test-kafka test-matrix test-lowest samples lint docs benchmark wheels clean clean-venvs
.PHONY: venvs old-venvs more-venvs servers strace chromium prometheus

demo: $(VENV)/installed
	$(BIN)/python sample_checkpoints/demo.py

# Tests sync many small files. In memory, if there is enough, that takes no time. The wide tests and the matrix use a disk.
MEMORY = $(shell test "$$(df --output=avail -BG /dev/shm 2>/dev/null | tail -1 | tr -dc 0-9)" -ge 8 2>/dev/null && echo /dev/shm)
test test-fast: export TMPDIR := $(or $(TMPDIR),$(MEMORY),/tmp)

# Two cores run three workers, because a test with Spark often waits.
PYTEST := -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

# What needs no Spark, and a slice with one Spark: the first command for a change.
test: $(VENV)/tested strace
	$(BIN)/python $(PYTEST) -m 'not wide' tests

# What needs no Spark, and does not take long.
test-fast: $(VENV)/tested strace
	$(BIN)/python $(PYTEST) -m 'not spark and not slow and not wide' tests

# The wider slice, and the other versions of Spark.
test-sparks: $(VENV)/tested venvs strace chromium prometheus
	$(BIN)/python $(PYTEST) -m wide tests

# Queries on a real Kafka broker, which the tests start; a part of test-sparks.
test-kafka: $(VENV)/tested
	$(BIN)/python -m pytest -q tests/positions/test_kafka.py

# Every combination, which takes many hours. TESTS='tests/delta tests/imports' runs that part of it.
test-matrix: TESTS ?= tests
test-matrix: $(VENV)/tested venvs old-venvs more-venvs servers strace chromium prometheus
	TTLSNAP_MATRIX=full $(BIN)/python $(PYTEST) --dist worksteal $(TESTS)

# Have Spark write all stored inputs of the tests again.
samples: $(VENV)/tested venvs
	$(BIN)/python -m tests.judge.renew --all

# The tests with the oldest release of each dependency that pyproject.toml allows, except Spark and Delta.
test-lowest: $(LOWEST)/tested venvs strace chromium prometheus
	$(LOWEST)/bin/python $(PYTEST) tests

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python docs/prose.py
	$(BIN)/mypy
	$(BIN)/mypy benchmarks sample_checkpoints docs release

# The documentation site, in build/site. A broken link or anchor is an error.
docs: $(VENV)/tested
	$(BIN)/python docs/assemble.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The files of a release, in dist: a wheel for each platform, and the sdist. They are checked and installed.
wheels: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable '.[release]' '$(SPARK)'
	$(BIN)/python release/wheels.py dist

benchmark: $(VENV)/tested
	$(BIN)/python benchmarks/run.py

# The tests of publishing kill it at every system call, with strace.
strace:
	command -v strace >/dev/null || (apt-get -q update && apt-get -q install -y strace)

# The tests of pages look at them in a browser.
chromium:
	command -v chromium >/dev/null || (apt-get -q update && apt-get -q install -y chromium)

# The tests of metrics have Prometheus scrape them through node exporter. RUNLEVEL=1 keeps their services from starting.
prometheus:
	(command -v promtool && command -v prometheus-node-exporter) >/dev/null || (apt-get -q update && \
		RUNLEVEL=1 apt-get -q install -y --no-install-recommends prometheus prometheus-node-exporter)

# The other environments of the tests, in a folder that all clones share: see tests/environments.py.
ENVIRONMENTS := $(BIN)/python tests/environments.py

venvs: $(VENV)/installed
	$(ENVIRONMENTS) spark-3.5 spark-4.0 spark-4.1 spark-4.2.1 spark-4.3 airflow actionlint

old-venvs: $(VENV)/installed
	$(ENVIRONMENTS) spark-3.1 spark-3.2 spark-3.3 spark-3.4

# These need python3.12 and python3.13.
more-venvs: $(VENV)/installed
	$(ENVIRONMENTS) spark-4.0-python3.12 spark-4.3-python3.13 spark-3.5.0-lowest

# Servers of object storage, built with the Go and the Node that PyPI has, in some ten minutes.
servers: $(VENV)/installed
	$(ENVIRONMENTS) servers

$(VENV)/installed: pyproject.toml setup.py ttlsnap/native/kernels.c
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable . '$(SPARK)'
	touch $@

# What the tests need has all that users need, so one installation serves both.
$(VENV)/tested: pyproject.toml setup.py ttlsnap/native/kernels.c
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]' '$(SPARK)'
	touch $(VENV)/installed $@

$(LOWEST)/tested: pyproject.toml
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct -r pyproject.toml \
		--extra delta --extra hdfs --extra html --extra kafka --extra objects '$(SPARK)' delta-spark==4.4.0
	# pip keeps the old releases, and adds what only the tests need.
	$(LOWEST)/bin/python -m pip install --quiet --editable '.[test]' '$(SPARK)'
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) build dist *.egg-info

clean-venvs: $(VENV)/installed
	$(ENVIRONMENTS) --remove
