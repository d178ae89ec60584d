# Everything a developer runs. Each target sets up what it needs in .venv, once, and again when
# pyproject.toml or constraints.txt has changed: a bare machine needs Python 3.11 or later, and a package registry.
# Choose another interpreter with `make PYTHON=/path/to/python3.12 …`.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
SEEDS ?= 10000
SOAK ?= 3600
DEMO_INPUT ?= examples/data/*.txt
DEMO_OUTPUT := build/demo/counts
STREAMING := --mode streaming --checkpoint_interval 1s

# The first of these that is Python 3.11 or later makes the environment.
PYTHONS := $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3 python)

.PHONY: help demo demo-on-spark test test-thorough simulate soak sqlglot-versions bench bench-streaming bench-checkpoints bench-grep bench-wide bench-building bench-formats bench-relational bench-directories bench-spark bench-spark-streaming lint format flags reference tree pictures constraints clean

help:
	@echo "make demo         count the words of a text, and ask 336,776 flights three questions in event time, on"
	@echo "                  the direct runner, on the streaming one and, where there is Java, on Spark, where"
	@echo "                  machines are watched for 20 seconds, too"
	@echo "make test         every check: lint, types, floors, tests"
	@echo "make test-thorough  the cases and examples of tests that make test leaves out, too"
	@echo "make simulate     simulated streams under kills, hangs and damage, SEEDS=10000 of them"
	@echo "make soak         an hour of keyed state on each backend, SOAK=3600 seconds: does memory stay flat?"
	@echo "make sqlglot-versions  the tests of SQL with the lowest, the newest and the compiled sqlglot that are allowed"
	@echo "make bench        the workloads beside hand-written loops, direct and as streams: twelve minutes, three runs"
	@echo "make bench-streaming  as streams with --inline off and on, with one worker, and in batch mode"
	@echo "make bench-checkpoints  what checkpoints of a million keys cost a stream"
	@echo "make bench-grep   throughput against latency of a streaming grep, over buffer timeouts"
	@echo "make bench-wide   what hundreds of parallel branches cost, direct beside streaming"
	@echo "make bench-building  what finding the text of functions adds to building and starting a pipeline"
	@echo "make bench-formats  reading and writing files of each format beside the same work by hand"
	@echo "make bench-relational  steps of expressions and queries in SQL beside the same steps of lambdas"
	@echo "make bench-directories  memory for directories of gigabytes, and time for ten thousand small files"
	@echo "make bench-spark  the workloads beside hand-written RDD code and DataFrame operations, in one Spark session"
	@echo "make bench-spark-streaming  streams on Spark beside the streaming runner, and what a batch costs"
	@echo "make lint         ruff, mypy --strict, the import floors, and import circles"
	@echo "make format       let ruff put the code in shape"
	@echo "make flags        write docs/flags.md from the options' models"
	@echo "make reference    write docs/reference.md from the docstrings, and the tables in docs/expressions.md"
	@echo "make tree         write the tree in docs/architecture.md from the modules' docstrings"
	@echo "make pictures     draw the pictures of docs/"
	@echo "make constraints  resolve every dependency anew into constraints.txt"
	@echo "make clean        delete the environment, build results and caches"

demo: $(VENV)/.with-demo
	@rm -rf build/demo && mkdir -p build/demo
	@echo "==> tidegate run examples/wordcount.py --runner direct --input '$(DEMO_INPUT)' --output $(DEMO_OUTPUT)"
	@$(BIN)/tidegate run examples/wordcount.py --runner direct --input '$(DEMO_INPUT)' --output $(DEMO_OUTPUT)
	@echo "==> written:"
	@ls -l $(DEMO_OUTPUT)*
	@echo "==> the ten most frequent words:"
	@awk '{ count = $$NF; $$NF = ""; sub(/[: ]+$$/, ""); printf "%8d  %s\n", count, $$0 }' $(DEMO_OUTPUT)* \
		| LC_ALL=C sort -k1,1nr -k2 | sed 10q
	@echo "==> tidegate run examples/flights.py --runner direct --output build/demo/flights"
	@$(BIN)/tidegate run examples/flights.py --runner direct --output build/demo/flights
	@echo "==> mean delay (minutes) of each carrier by day, from 336,776 flights:"
	@sed 5q build/demo/flights/carriers-*
	@echo "==> the sessions of each aircraft:"
	@sed 5q build/demo/flights/aircraft-*
	@echo "==> the worst delays of each airport so far, the last pane:"
	@grep on_time build/demo/flights/worst-*
	@sort build/demo/flights/* > build/demo/direct.txt
	@echo "==> tidegate run examples/flights.py --runner streaming --output build/demo/on-streaming"
	@$(BIN)/tidegate run examples/flights.py --runner streaming --output build/demo/on-streaming
	@sort build/demo/on-streaming/* > build/demo/streaming.txt
	@cmp build/demo/direct.txt build/demo/streaming.txt
	@echo "==> the same $$(wc -l < build/demo/streaming.txt) lines on both"
	@$(MAKE) demo-on-spark

# The same script on Spark, where there is a Java for it.
demo-on-spark:
	@set -e; if ! "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version >/dev/null 2>&1; then \
		echo "==> not on Spark: there is no Java here, and Spark needs 17 or newer"; \
		exit 0; \
	fi; \
	$(MAKE) --silent $(VENV)/.with-spark; \
	lacks=$$($(BIN)/python -c "from tidegate.runners.spark.driver.session import missing; print(*missing(), sep='; ')"); \
	if [ -n "$$lacks" ]; then \
		echo "==> not on Spark: $$lacks"; \
		exit 0; \
	fi; \
	echo "==> tidegate run examples/flights.py --runner spark --output build/demo/on-spark"; \
	$(BIN)/tidegate run examples/flights.py --runner spark --output build/demo/on-spark; \
	sort build/demo/on-spark/* > build/demo/spark.txt; \
	cmp build/demo/direct.txt build/demo/spark.txt; \
	echo "==> the same $$(wc -l < build/demo/spark.txt) lines on both"; \
	echo "==> tidegate run examples/alerts.py --runner spark --run_for 20 --output build/demo/watch"; \
	$(BIN)/tidegate run examples/alerts.py --runner spark --run_for 20 --output build/demo/watch; \
	echo "==> alerts of 20 seconds, written while the stream ran, in $$(ls build/demo/watch-* | wc -l) files:"; \
	sort build/demo/watch-alerts* | sed 8q; \
	echo "==> mean temperatures of 5 seconds each:"; \
	sort build/demo/watch-means* | sed 8q

test: lint
	@echo "==> pytest"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

# The cases and examples that `make test` leaves out, too.
test-thorough: lint
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --thorough

# One process for each job; for a seed that fails, the command is printed that runs it again.
simulate: $(VENV)/.with-dev
	@echo "==> $(SEEDS) seeds of tests/streaming/simulation"
	@$(BIN)/python -m tests.streaming.simulation --seeds 0:$(SEEDS) --jobs $(JOBS)

soak: $(VENV)/.with-dev
	@echo "==> benchmarks/soak.py, $(SOAK) s of each backend"
	@$(BIN)/python benchmarks/soak.py --seconds $(SOAK)

sqlglot-versions: $(VENV)/.with-dev
	@$(BIN)/python -m tests.support.sql.sqlglot_versions

bench: $(VENV)/.with-bench
	@echo "==> benchmarks/run.py"
	@$(BIN)/python benchmarks/run.py
	@echo "==> benchmarks/run.py --runner streaming"
	@$(BIN)/python benchmarks/run.py --runner streaming --inline on -- $(STREAMING) --workers 2

bench-streaming: $(VENV)/.with-bench
	@echo "==> benchmarks/run.py --runner streaming"
	@$(BIN)/python benchmarks/run.py --runner streaming -- $(STREAMING) --workers 2
	@$(BIN)/python benchmarks/run.py --runner streaming --runs 1 -- $(STREAMING) --workers 1
	@echo "==> in batch mode"
	@$(BIN)/python benchmarks/run.py --runner streaming --runs 1 -- --workers 2

bench-checkpoints: $(VENV)/.with-bench
	@echo "==> benchmarks/checkpoints.py"
	@$(BIN)/python benchmarks/checkpoints.py

bench-grep: $(VENV)/.with-bench
	@echo "==> benchmarks/grep.py"
	@$(BIN)/python benchmarks/grep.py

bench-wide: $(VENV)/.with-bench
	@echo "==> benchmarks/wide.py"
	@$(BIN)/python benchmarks/wide.py

bench-building: $(VENV)/.with-bench
	@echo "==> benchmarks/building.py"
	@$(BIN)/python benchmarks/building.py

bench-relational: $(VENV)/.with-bench
	@echo "==> benchmarks/relational.py"
	@$(BIN)/python benchmarks/relational.py

bench-formats: $(VENV)/.with-bench
	@echo "==> benchmarks/formats.py"
	@$(BIN)/python benchmarks/formats.py

bench-directories: $(VENV)/.with-bench
	@echo "==> benchmarks/directories.py"
	@$(BIN)/python benchmarks/directories.py

bench-spark: $(VENV)/.with-bench $(VENV)/.with-spark
	@echo "==> benchmarks/spark.py"
	@$(BIN)/python benchmarks/spark.py

bench-spark-streaming: $(VENV)/.with-bench $(VENV)/.with-spark
	@echo "==> benchmarks/spark_streaming.py"
	@$(BIN)/python benchmarks/spark_streaming.py

lint: $(VENV)/.with-dev
	@echo "==> ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --quiet --check . || { echo "Files need formatting: run 'make format'." >&2; exit 1; }
	@echo "==> mypy --strict"
	@$(BIN)/mypy
	@echo "==> import floors and circles"
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.with-dev
	@$(BIN)/ruff check --quiet --fix --exit-zero .
	@$(BIN)/ruff format .

flags: $(VENV)/.with-dev
	@$(BIN)/python docs/generate_flags.py docs/flags.md

reference: $(VENV)/.with-dev
	@$(BIN)/python docs/generate_reference.py docs/reference.md
	@$(BIN)/python docs/generate_operations.py docs/expressions.md

tree: $(VENV)/.with-dev
	@$(BIN)/python docs/generate_tree.py docs/architecture.md

# The pictures of docs/.
pictures: $(VENV)/.with-dev
	@$(BIN)/python docs/generate_pictures.py docs

# All extras are resolved together, so that any can be installed beside any other, and on the oldest Python that is
# supported, so that the versions chosen exist for every one.
constraints:
	@rm -rf build/constraints
	@$(MAKE) VENV=build/constraints PYTHON=$(or $(PYTHON),python3.11) build/constraints/bin/python
	@echo "==> resolving all extras anew (this downloads Spark)"
	@build/constraints/bin/python -m pip install --quiet --upgrade --editable '.[bench,demo,dev,http,package,remote,rocksdb,spark,zstd]'
	@{ echo "# Exact versions of everything the extras install. Written by 'make constraints'."; \
	   build/constraints/bin/python -m pip freeze --exclude-editable; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@rm -rf build/constraints
	@echo "==> constraints.txt: $$(grep -c == constraints.txt) packages"

clean:
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra that has been installed.
$(VENV)/.with-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing tidegate[$*] in $(VENV)"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@for python in $(PYTHONS); do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		echo "==> making $(VENV) with $$("$$python" --version) ($$(command -v "$$python"))"; \
		rm -rf $(VENV); \
		"$$python" -m venv --upgrade-deps $(VENV) && exit 0; \
		rm -rf $(VENV); \
		echo "$$python can't make virtual environments: install its venv module (on Debian and Ubuntu: apt-get install python3-venv)." >&2; \
		exit 1; \
	done; \
	echo "Tidegate needs Python 3.11 or later; none of these is: $(PYTHONS). Install one, or say: make PYTHON=/path/to/python3 …" >&2; \
	exit 1
