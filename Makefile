# `make up` and `make test` each set up a fresh machine that has Python 3.11 or newer and Java 17; `make test` skips some tests without Go.
# `make help` lists the targets.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
FILES ?= examples/flights
AGAINST ?= ottla
SEEDS ?= 100
FIRST ?= 1
ROUNDS ?= 50
SEED ?= 1
KIND ?= ottla
# Python caches its byte code: tests start thousands of processes, and each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=
VERSION = $(shell sed -n 's/^appVersion: *//p' charts/ottla/Chart.yaml)

# The broker with compiled hot paths (docs/compiled.md), which `make up` runs once it is there. CAN_COMPILE tells whether it can be built.
COMPILED := build/compiled
CAN_COMPILE = command -v cc >/dev/null && [ -e "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]
# In a session of its own with that priority: Linux divides processors between sessions first (autogroups, sched(7)).
AT_LOWEST_PRIORITY = $(BIN)/python -c 'import os, sys; os.setsid(); os.nice(19); own = "/proc/self/autogroup"; \
	os.path.exists(own) and open(own, "w").write("19"); os.execvp(sys.argv[1], sys.argv[1:])'
COMPILED_TESTS := tests/unit/test_hot_paths.py $(wildcard $(addprefix tests/unit/,api coordination http log replication server wire)) tests/clients/test_confluent.py

.PHONY: help up compiled compiled-tests check docs test test-all unit sim clients spark e2e rounds kube bench bench-cluster bench-mirror bench-access bench-registry bench-kube bench-report kind kcat chromium postgresql prometheus load-programs control-plane s3-server kube-programs console-pictures clean

# A target's line ends with `## its description`.
help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' Makefile | awk -F '\t' '{ printf "%-16s %s\n", $$1, $$2 }'

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# setuptools warns about every editable installation; the warning would only distract somebody who tries this out.
$(VENV)/.installed-up: pyproject.toml | $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[cli,parquet,registry,spark,examples]'
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/.installed-up $(VENV)/.installed-compile

# Not the extra itself: that would install ottla again, from which brokers may be running.
$(VENV)/.installed-compile: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["compile"], sep="\n")' \
		| $(BIN)/python -m pip install --quiet --requirement /dev/stdin
	touch $@

# Compiling takes one to two minutes of a processor. So unless the compiled broker is up to date, this runs the broker from its source, and compiles
# it in the background for later runs. Ctrl-C does not end the compilation: shells let commands in the background ignore it.
up: $(VENV)/.installed-up ## run the resources in FILES (default examples/flights) on this machine
	@if make --question $(COMPILED)/.built >/dev/null 2>&1; then export PYTHONPATH=$(COMPILED); \
	elif $(CAN_COMPILE); then mkdir -p build; $(AT_LOWEST_PRIORITY) make --no-print-directory compiled >build/compiling.log 2>&1 & fi; \
	$(BIN)/ottla up $(FILES)

compiled: $(COMPILED)/.built ## compile the broker's hot paths into build/compiled, for PYTHONPATH

# The time of .built is that of the beginning: a source that is edited meanwhile is compiled again.
$(COMPILED)/.built: setup.py pyproject.toml .ci/compile $(shell find broker-image -name '*.py') | $(VENV)/.installed-compile
	@mkdir -p build; touch build/.compiling; .ci/compile $(BIN)/python $(COMPILED)
	@mv build/.compiling $@

compiled-tests: $(VENV)/.installed-test compiled ## run unit tests and tests of clients on the compiled broker
	OTTLA_HOT_PATHS=compiled $(BIN)/pytest -o pythonpath='$(COMPILED) operator spark-app .' $(COMPILED_TESTS)

# mypy reads its results for files that have not changed, also those of another checkout.
check: export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ottla/mypy
check: $(VENV)/.installed-test ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-test ## build the documentation site into build/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The suites. Each is a pytest marker too (pyproject.toml). `make test` and `make test-all` run two groups in parallel. Tests that wait for
# processes run in WORKERS workers of pytest-xdist, file by file. What only computes runs at lower priority and uses what the others leave: the
# checks, the documents, tests in two workers, and then bench.instructions, which compares how many instructions a small request takes with the last
# release. `make test` leaves the tests with the marker `slow` to continuous integration (CONTRIBUTING.md); the targets of single suites run them.
COMPUTING := tests/unit tests/sim
WAITING := tests/clients tests/spark tests/e2e
# Tests that need a kubelet: building their programs and images takes longer than running everything else.
NODES := tests/kube tests/e2e/test_operator.py tests/e2e/test_readme_on_kubernetes.py
WORKERS ?= 4

SUITES_NEED := $(VENV)/.installed-test kcat chromium postgresql prometheus control-plane s3-server load-programs

# $(1): pytest's options that select tests.
define RUN_SUITES
	@mkdir -p build; nice -n 10 sh -c 'make --no-print-directory --keep-going check docs; checked=$$?; \
		$(BIN)/pytest --numprocesses 2 $(1) $(COMPUTING); computed=$$?; \
		$(BIN)/python -m bench.instructions; exit $$((checked | computed | $$?))' > build/computing.log 2>&1 & computing=$$!; \
	$(BIN)/pytest --numprocesses $(WORKERS) $(1) $(WAITING) $(NODES:%=--ignore %); waited=$$?; \
	wait $$computing; computed=$$?; cat build/computing.log; exit $$((waited | computed))
endef

test: $(SUITES_NEED) ## run the checks and every suite but the one of `make kube`, without slow tests
	$(call RUN_SUITES,-m "not slow")

test-all: $(SUITES_NEED) ## the same with slow tests, as continuous integration does
	$(call RUN_SUITES)

unit: $(VENV)/.installed-test load-programs ## run the unit tests
	$(BIN)/pytest tests/unit

sim: $(VENV)/.installed-test ## simulate SEEDS seeds from FIRST on: one cluster, metadata alone, access rules, transactions, share groups, streams groups, two clusters
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.sim --metadata --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.sim --access --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.sim --observers --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.sim --transactions --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.sim --shares --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.sim --streams --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.sim --mirrors --seeds $(SEEDS) --first $(FIRST)

clients: $(VENV)/.installed-test kcat chromium ## test with real clients; AGAINST=kafka runs the same tests against Apache Kafka
	$(BIN)/pytest tests/clients --against $(AGAINST)

spark: $(VENV)/.installed-test postgresql s3-server ## test pipelines on a real Spark
	$(BIN)/pytest tests/spark

e2e: $(VENV)/.installed-test prometheus control-plane ## test whole clusters, `ottla up` and mirrors as processes
	$(BIN)/pytest tests/e2e $(NODES:%=--ignore %)

rounds: $(VENV)/.installed-test ## run ROUNDS rounds of faults against real brokers under load; reproducible by SEED and FIRST, as root
	$(BIN)/python -m tests.e2e.rounds $(ROUNDS) --seed $(SEED) --first $(FIRST)

kube: kube-programs chromium postgresql s3-server ## test brokers and the operator in pods, on a real Kubernetes that the tests start
	@$(BIN)/python -m tests.kube.images.build # not within a test's time limit: the first time takes minutes
	$(BIN)/pytest $(NODES)

bench: $(VENV)/.installed-test load-programs ## compare one broker with Apache Kafka; LINES="produce-1k latency" for some lines, BENCH=--quick for a short run
	$(BIN)/python -m bench $(BENCH) $(LINES)

bench-cluster: $(VENV)/.installed-test load-programs ## compare three brokers with Apache Kafka; LINES and BENCH as above
	$(BIN)/python -m bench.cluster $(BENCH) $(LINES)

bench-mirror: $(VENV)/.installed-test load-programs ## compare mirroring with MirrorMaker 2; LINES and BENCH as above
	$(BIN)/python -m bench.mirror $(BENCH) $(LINES)

bench-access: $(VENV)/.installed-test load-programs ## measure logins, access rules, waits while logins fail, and TLS beside Apache Kafka
	$(BIN)/python -m bench.access
	$(BIN)/python -m bench.failed_logins
	$(BIN)/python -m bench tls

bench-registry: $(VENV)/.installed-test ## measure the schema registry of one broker
	$(BIN)/python -m bench.schema_registry

bench-kube: kube-programs ## measure the operator; LINES as above; lines that need nodes run as root
	$(BIN)/python -m bench.kube $(LINES)

bench-report: $(VENV)/.installed-test ## draw docs/images/benchmark-*.svg from the results stored in docs/measurements
	$(BIN)/python -m bench.chart

console-pictures: $(VENV)/.installed-test chromium ## take the console's pictures in docs/images, by its tests
	OTTLA_PICTURES=1 $(BIN)/pytest tests/clients/test_console*.py

kind: ## install the operator in a kind cluster named KIND; needs docker, kind and helm
	docker build -f broker-image/Dockerfile -t ottla-broker:$(VERSION) .
	docker build -f broker-image/Dockerfile -t ottla-operator:$(VERSION) --target operator .
	docker build -f broker-image/Dockerfile -t ottla-client:$(VERSION) --target client .
	docker build -f spark-app/Dockerfile -t ottla-spark:$(VERSION) .
	kind get clusters | grep -qx $(KIND) || kind create cluster --name $(KIND)
	kind load docker-image --name $(KIND) $(foreach it,broker operator client spark,ottla-$(it):$(VERSION))
	helm upgrade --install ottla charts/ottla --kube-context kind-$(KIND) --namespace ottla --create-namespace --wait \
		--set-string podAnnotations.built=$(shell date +%s)

kcat: ## install kcat, where `make` runs as root
	@command -v kcat >/dev/null || .ci/debian kcat

chromium: ## install the browser that tests of the console drive, where `make` runs as root
	@command -v chromium >/dev/null || .ci/debian chromium fonts-dejavu-core

postgresql: ## install PostgreSQL, where `make` runs as root
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || .ci/debian postgresql

prometheus: ## install Prometheus and promtool without running them, where `make` runs as root
	@command -v promtool >/dev/null || RUNLEVEL=1 .ci/debian prometheus

load-programs: ## install what the load programs of the benchmarks are compiled with, where `make` runs as root
	@echo '#include <librdkafka/rdkafka.h>' | cc -x c -shared -o /dev/null - -lrdkafka -lmimalloc 2>/dev/null \
		|| .ci/debian gcc libc6-dev librdkafka-dev libmimalloc-dev

control-plane: $(VENV)/.installed-test ## build Kubernetes' control plane from its Go modules, once
	$(BIN)/python -m tests.kube.programs control-plane

s3-server: $(VENV)/.installed-test ## build an S3 server for the tests from its Go module, once
	$(BIN)/python -m tests.s3_server

kube-programs: $(VENV)/.installed-test ## build helm and all programs of a Kubernetes from their Go modules, once: takes minutes
	@{ command -v debootstrap && command -v openssl && command -v ip; } >/dev/null || .ci/debian debootstrap openssl iproute2
	$(BIN)/python -m tests.kube.programs
	$(BIN)/python -m tests.kube.helm
	$(BIN)/python -m tests.kube.spark_operator
	$(BIN)/python -m tests.kube.network_plugin

clean: ## remove the virtual environment and all caches of the tools
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
