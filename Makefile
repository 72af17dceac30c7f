# make demo     the main job: real flights through three nodes that are ruined, checked to the record
# make test     a test of every rule, on JOBS processes (four for two cores)
# make test-all   those marked slow as well, which show the same in a longer form, with twice the examples
# make test-fast  what whoever edits runs again and again: everything that starts no process, in a minute and a half
# make lint     formatting, types, import contracts
# make bench    every benchmark beside its peer
# make fuzz     the fuzzers, FUZZ_SECONDS each
# make sim      whole runs on a virtual clock, from SIM_SEEDS, on every core: thousands of seeds, about an hour
# make chaos    clusters of real nodes in networks of their own, hurt for CHAOS_MINUTES: what is lost, and who is told
# make soak     one cluster of three nodes for HOURS (0.5 will do): chaos, load, compaction, retention and a scraper of its
#               metrics together; fails if anything is lost or grows; pictures by hour into SOAK_INTO (soak-output/DATE)
# make worlds   every state of small worlds of replicas, and what breaks under the rules that were replaced
# make mutants  change one place of the replication rules at a time, and see whether a test fails: a minute or two
#               (MUTANTS_ARGS="quorum --sample 300": some of another package; tests/mutants/run_mutants.py --help)
# make peers    Apache Kafka, Spark's Kafka connector, Hadoop's S3 and HDFS into peers/, for the tests and benchmarks with them
# make setup    what each of these does first: everything it needs, in .venv, once
# make librdkafka  librdkafka's own tests against three nodes: built from source, half an hour in all
# make clean    forget .venv, peers/ and everything built
#
# A Python of your choice: make test PYTHON=/path/to/python3.12

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
FUZZ_SECONDS ?= 60
SIM_SEEDS ?= 1..2000
SIM_ARGS ?=
CHAOS_MINUTES ?= 60
CHAOS_ARGS ?=
HOURS ?= 1
SOAK_INTO ?=
SOAK_ARGS ?=
WORLDS ?=
PYTEST_ARGS ?=
# Twice as many as there are cores: some tests wait, for sessions and elections, while others compute.
JOBS ?= $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))
# A file of tests, or a folder that starts something dear (tests/support/one_process.py), is run by one process.
SPREAD = -n $(JOBS) --dist loadfile --no-loadscope-reorder
FAST := tests/unit tests/contracts tests/scenarios
PIP_INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --no-input

.PHONY: help setup demo test test-all test-fast lint format bench fuzz sim chaos soak worlds mutants peers librdkafka constraints clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

setup: $(READY)

demo: $(READY)
	@$(RUN) -m tidelog demo

# A JVM of the tests maps it, where `make peers` fetched Kafka: half of the work of a start.
ARCHIVE := $(patsubst %/.fetched,%/classes.jsa,$(wildcard peers/kafka/.fetched))

peers/kafka/classes.jsa: peers/kafka/.fetched | $(READY)
	@$(RUN) tests/support/clients/class_archive.py

test: $(READY) $(ARCHIVE)
	@$(RUN) -m pytest $(SPREAD) -m "not slow" --hypothesis-profile=third $(PYTEST_ARGS)

test-all: $(READY) $(ARCHIVE)
	@$(RUN) -m pytest $(SPREAD) $(PYTEST_ARGS)

test-fast: $(READY)
	@$(RUN) -m pytest -q $(SPREAD) -m "not slow" --hypothesis-profile=fast $(PYTEST_ARGS) $(FAST)

lint: $(READY)
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check
	@$(RUN) -m mypy
	@$(VENV)/bin/lint-imports --no-logo

format: $(READY)
	@$(RUN) -m ruff check --fix
	@$(RUN) -m ruff format

bench: $(READY)
	@$(RUN) bench/run.py

fuzz: $(READY)
	@set -e; for fuzzer in tests/fuzz/fuzz_*.py; do echo "$$fuzzer, $(FUZZ_SECONDS) s"; $(RUN) $$fuzzer $(FUZZ_SECONDS); done

worlds: $(READY)
	@$(RUN) tests/exhaustive/worlds.py $(WORLDS)

mutants: $(READY)
	@$(RUN) tests/mutants/run_mutants.py $(MUTANTS_ARGS)

sim: $(READY)
	@$(RUN) -m tidelog sim run --seeds $(SIM_SEEDS) $(SIM_ARGS)
	@$(RUN) -m tidelog sim run --seeds $(SIM_SEEDS) --cluster 3 $(SIM_ARGS)

chaos: $(READY)
	@$(RUN) tests/chaos/run.py --minutes $(CHAOS_MINUTES) $(CHAOS_ARGS)

soak: $(READY)
	@$(RUN) tests/chaos/soak.py --hours $(HOURS) $(if $(SOAK_INTO),--into $(SOAK_INTO)) $(SOAK_ARGS)

peers: peers/kafka/.fetched peers/spark/.fetched peers/hadoop/.fetched peers/hdfs/.fetched

# Anew when its list has changed. Without them the tests and benchmarks that want them say so, and skip.
peers/%/.fetched: constraints/peers/%.xml
	@for tool in javac mvn; do command -v $$tool >/dev/null 2>&1 || { \
	  echo "error: there is no $$tool here. make peers needs a JDK of 17 or newer and Maven. On Debian and Ubuntu: apt install openjdk-17-jdk-headless maven" >&2; \
	  exit 1; }; done
	@echo "$* into peers/$*"
	@rm -rf peers/$*
	@mvn --batch-mode --quiet -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/peers/$*"
	@touch $@

# librdkafka's sources, with its tests, come within the package of its JavaScript client. It is built with OpenSSL and
# RapidJSON where their headers are there; without, the tests that need them say so, and skip.
LIBRDKAFKA := peers/librdkafka/package/deps/librdkafka
LIBRDKAFKA_PACKAGE := @confluentinc/kafka-javascript@1.10.1

librdkafka: $(READY) $(LIBRDKAFKA)/tests/test-runner
	@$(RUN) tests/compat/librdkafka/suite.py $(LIBRDKAFKA_ARGS)

$(LIBRDKAFKA)/tests/test-runner:
	@for tool in npm gcc g++; do command -v $$tool >/dev/null 2>&1 || { \
	  echo "error: there is no $$tool here. make librdkafka needs npm, a C and a C++ compiler and the headers of zlib and zstd; with those of OpenSSL and RapidJSON more tests run. On Debian and Ubuntu: apt install npm build-essential zlib1g-dev libzstd-dev libssl-dev rapidjson-dev" >&2; \
	  exit 1; }; done
	@rm -rf peers/librdkafka && mkdir -p peers/librdkafka
	@cd peers/librdkafka && npm pack --silent $(LIBRDKAFKA_PACKAGE) && tar xzf *.tgz
	@cd $(LIBRDKAFKA) && chmod +x configure lds-gen.py && ./configure --disable-gssapi --disable-sasl --disable-curl > build.log
	@cd $(LIBRDKAFKA) && $(MAKE) libs >> build.log 2>&1 && $(MAKE) -C tests build >> build.log 2>&1 \
	  || { tail -n 30 build.log >&2; exit 1; }

# Everything pinned, with hashes, for every platform and Python that we support. Needs uv; names no host.
constraints:
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --all-extras --group dev \
	  --no-header --quiet -o constraints/all.txt
	uv pip compile --universal --python-version 3.11 --generate-hashes --group build -c constraints/all.txt \
	  --no-header --quiet -o constraints/build.txt

clean:
	rm -rf $(VENV) build dist peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output
	rm -rf src/*.egg-info src/tidelog/records/*.so src/tidelog/records/*.c src/tidelog/records/*.html
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN):
	@set -e; \
	for candidate in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3); do \
	  if command -v "$$candidate" >/dev/null 2>&1 \
	    && "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$${python:-}" ]; then \
	  echo "error: no Python 3.11 or newer among: $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3). Install one, or name it: make PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "error: $$python cannot make virtual environments: it comes without venv or ensurepip. On Debian and Ubuntu: apt install python3-venv. Or name another: make PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	echo "[1/3] $$("$$python" --version) in $(VENV)"; \
	"$$python" -m venv $(VENV)

$(READY): $(RUN) Makefile pyproject.toml setup.py constraints/build.txt constraints/all.txt $(wildcard src/tidelog/*/kernel*.p*)
	@echo "[2/3] the pinned packages, by their hashes (about a minute the first time)"
	@$(PIP_INSTALL) --require-hashes -r constraints/build.txt
	@$(PIP_INSTALL) --no-build-isolation --use-pep517 --require-hashes -r constraints/all.txt
	@echo "[3/3] Tidelog itself"
	@$(PIP_INSTALL) --no-build-isolation --no-deps -e .
	@$(RUN) -c 'from tidelog import records; print("the kernel is " + ("compiled" if records.KERNEL_IS_COMPILED else "interpreted: slower; a C compiler would speed it up"))'
	@touch $@
