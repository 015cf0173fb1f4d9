# Grange: `make` prints this help. Every target sets up its own environment in .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := .cache/docs
JOBS   := .cache/jobs

# Where Python may not keep what it compiles, every start of a process compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

# `make test` judges a change by the same examples every time; `make sim` looks for new ones.
REPEATABLE := --hypothesis-profile=ci
# A worker gets neighbouring tests, which share fixtures and caches, and takes over from slower ones.
STEAL      := --dist worksteal
UNIT       := tests/unit tests/contract tests/sim
E2E        := tests/e2e
# Of the first check of a checkout, writing the cache is a fifth. A developer's next `make check` writes it.
CHECK_ONCE := $(if $(wildcard .mypy_cache),,TYPES=--cache-dir=/dev/null)

.DEFAULT_GOAL := help
.PHONY: help run test test-durations check fix unit e2e bench sim update docs lock clean setup kubectl cri sshd

help:  ## show this help
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" sh scripts/setup.sh "$(VENV)"
	@touch $@

setup: $(STAMP)  ## make the environment (done by every other target)

run: $(STAMP)  ## a control plane, a replicated service, proof that it works; then clean up
	@$(BIN)/python examples/run.py

# What waits for downloads runs at the same time as what computes. Then the tests that mostly wait for processes, and
# for kubectl before, take what they need of the machine, and all that computes takes the rest: most contracts are of
# the first.
test:  ## everything CI runs
	@$(MAKE) --no-print-directory -j4 $(STAMP) $(DOCS)/.installed cri sshd $(JOBS)/.installed
	@$(MAKE) --no-print-directory e2e E2E="$(E2E) tests/contract" >.cache/e2e.log 2>&1 & e2e=$$!; \
	nice -n 5 $(MAKE) --no-print-directory -j2 check docs $(CHECK_ONCE) && \
	nice -n 5 $(MAKE) --no-print-directory unit UNIT="$(filter-out tests/contract,$(UNIT))"; others=$$?; \
	echo "end-to-end tests:"; wait $$e2e; e2e=$$?; \
	cat .cache/e2e.log; [ $$others$$e2e = 00 ]

test-durations: $(STAMP)  ## what `make unit` costs: processor time by folder, the slowest tests
	@$(BIN)/python -m pytest -q -n auto $(REPEATABLE) -p tests.support.durations $(UNIT)

check: $(STAMP)  ## format, lint, types, layers, names, structure
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy $(TYPES)
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q tests/arch

fix: $(STAMP)  ## format, and apply automatic fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

unit: $(STAMP) cri  ## unit, contract and simulation tests (virtual time)
	@$(BIN)/python -m pytest -q -n auto $(STEAL) $(REPEATABLE) $(UNIT)

cri:
	@sh scripts/setup_cri.sh

sshd:
	@sh scripts/setup_sshd.sh

kubectl: $(STAMP)
	@$(BIN)/python scripts/get_kubectl.py >/dev/null

$(JOBS)/.installed: requirements-jobs.lock scripts/setup_jobs.sh scripts/setup.sh
	@PYTHON="$(PYTHON)" sh scripts/setup_jobs.sh "$(JOBS)"
	@touch $@

# More workers than a small machine has processors: these tests wait for processes.
e2e: kubectl cri sshd $(JOBS)/.installed  ## real processes, sockets, disk, kubectl
	@$(BIN)/python -m pytest -q -n 4 $(STEAL) $(REPEATABLE) $(E2E)

sim: $(STAMP)  ## simulated worlds under faults, a thousand seeds; properties with fresh examples
	@$(BIN)/python -m pytest -q -n auto tests/sim --seeds 1000
	@$(BIN)/python -m pytest -q -n auto -m hypothesis tests/unit tests/contract

bench: $(STAMP)  ## measure the figures of docs/reference/benchmarks.md
	@sh scripts/setup_peers.sh
	@$(BIN)/python -m bench

update: $(STAMP)  ## regenerate what is generated (reference pages, diagrams)
	@$(BIN)/python -m scripts.update

$(DOCS)/.installed: requirements-docs.lock scripts/setup.sh
	@PYTHON="$(PYTHON)" sh scripts/setup.sh "$(DOCS)" requirements-docs.lock
	@touch $@

docs: $(DOCS)/.installed  ## build the site of the documentation in .cache/site
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict
	@echo "open .cache/site/index.html"

lock: $(STAMP)  ## resolve the locks again
	@sh scripts/lock.sh

clean:  ## remove the environment and caches
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
