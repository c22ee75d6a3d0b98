# Two commands do all the set-up on a fresh machine with Python 3.11+ and Java 17: `make up` and `make test`.
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
VERSION = $(shell sed -n 's/^appVersion: *//p' charts/ottla/Chart.yaml)

.PHONY: up test check docs unit clients sim spark bench bench-cluster bench-mirror bench-kube load-programs rounds kcat kube-programs control-plane kube kind clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# setuptools warns of every editable installation; that is not for the eyes of somebody who tries this out.
$(VENV)/.installed-up: pyproject.toml | $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[cli,spark,examples]'
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/.installed-up

up: $(VENV)/.installed-up ## start everything that FILES describes
	$(BIN)/ottla up $(FILES)

check: $(VENV)/.installed-test ## style, types and layering
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-test ## the documentation as a site, in build/site; fails on a broken link
	$(BIN)/mkdocs build --quiet --strict

unit: $(VENV)/.installed-test
	$(BIN)/pytest tests/unit

clients: $(VENV)/.installed-test kcat ## real clients; AGAINST=kafka runs the same tests against Apache Kafka
	$(BIN)/pytest tests/clients --against $(AGAINST)

sim: $(VENV)/.installed-test ## SEEDS simulated runs from FIRST on, on all cores, and as many of two clusters; one again: .venv/bin/python -m tests.sim [--mirrors] SEED
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.sim --mirrors --seeds $(SEEDS) --first $(FIRST)

spark: $(VENV)/.installed-test
	$(BIN)/pytest tests/spark

# Tests that need a kubelet are `make kube`: their programs and images take longer to build than everything else to run.
NODES := tests/kube tests/e2e/test_operator.py

# What waits for processes runs in so many streams beside each other, by files. What only computes (units, simulations) runs behind them, whenever they leave a processor free.
STREAMS ?= 2
COMPUTES := tests/unit tests/sim

test: check docs kcat control-plane ## everything but `kube`
	@mkdir -p build; nice -n 5 $(BIN)/pytest $(COMPUTES) > build/computes.log 2>&1 & computes=$$!; \
	$(BIN)/pytest --numprocesses $(STREAMS) $(NODES:%=--ignore %) $(COMPUTES:%=--ignore %); waits=$$?; \
	wait $$computes; computed=$$?; echo "$(COMPUTES):"; cat build/computes.log; exit $$((waits | computed))

bench: $(VENV)/.installed-test load-programs ## side by side with Apache Kafka; LINES="produce-1k latency" for some, BENCH=--quick for a look
	$(BIN)/python -m bench $(BENCH) $(LINES)

load-programs:
	@echo '#include <librdkafka/rdkafka.h>' | cc -x c -shared -o /dev/null - -lrdkafka -lmimalloc 2>/dev/null \
		|| .ci/debian gcc libc6-dev librdkafka-dev libmimalloc-dev

control-plane: $(VENV)/.installed-test
	$(BIN)/python -m tests.kube.programs control-plane

kube: kube-programs ## brokers and the operator in pods, on a real Kubernetes of the tests' own
	$(BIN)/pytest $(NODES)

kube-programs: $(VENV)/.installed-test ## Kubernetes' own programs from their Go modules: minutes, once, kept outside the checkout
	@{ command -v debootstrap && command -v openssl && command -v ip; } >/dev/null || .ci/debian debootstrap openssl iproute2
	$(BIN)/python -m tests.kube.programs

kind: ## the operator in a Kubernetes of its own, called KIND; for people who have docker, kind and helm
	docker build -f broker-image/Dockerfile -t ottla-broker:$(VERSION) .
	docker build -f broker-image/Dockerfile -t ottla-operator:$(VERSION) --target operator .
	docker build -f spark-app/Dockerfile -t ottla-spark:$(VERSION) .
	kind get clusters | grep -qx $(KIND) || kind create cluster --name $(KIND)
	kind load docker-image --name $(KIND) $(foreach it,broker operator spark,ottla-$(it):$(VERSION))
	helm upgrade --install ottla charts/ottla --kube-context kind-$(KIND) --namespace ottla --create-namespace --wait \
		--set-string podAnnotations.built=$(shell date +%s)

bench-cluster: $(VENV)/.installed-test load-programs ## three brokers of each side; LINES and BENCH as above
	$(BIN)/python -m bench.cluster $(BENCH) $(LINES)

bench-mirror: $(VENV)/.installed-test load-programs ## one cluster copied to another, beside MirrorMaker 2; LINES and BENCH as above
	$(BIN)/python -m bench.mirror $(BENCH) $(LINES)

bench-kube: kube-programs ## the operator: LINES as above; those with nodes take root
	$(BIN)/python -m bench.kube $(LINES)

rounds: $(VENV)/.installed-test ## ROUNDS of faults against real brokers under load, the first of them SEED-FIRST; only root may
	$(BIN)/python -m tests.e2e.rounds $(ROUNDS) --seed $(SEED) --first $(FIRST)

kcat:
	@command -v kcat >/dev/null || .ci/debian kcat

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
