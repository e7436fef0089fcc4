# `make quickstart` and `make test` are all that a new user needs; both set up what they need first.
VENV ?= .venv
BIN := $(VENV)/bin
TESTBED_TESTS ?= testbed
SIDE_BY_SIDE := -n $$(($$(nproc) + 1)) --dist worksteal
EXPERIMENT ?= playbooks/experiments/quickstart.yaml

.DEFAULT_GOAL := help
.PHONY: help setup frameworks quickstart test unit testbed-test check bench clean

help: ## tell what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: system packages, $(VENV), Python packages
	@VENV=$(VENV) playbooks/hosts/prepare-this-machine

frameworks: ## build the environments of Horovod and TensorFlow into a cache, once (minutes)
	@playbooks/hosts/prepare-frameworks

quickstart: setup ## run the first experiment on containers of this machine
	$(BIN)/orch run $(EXPERIMENT) --dry-run

test: unit testbed-test ## every test, those on a local testbed too

unit: setup ## the tests that need no testbed
	$(BIN)/python -m pytest -m "not testbed" $(SIDE_BY_SIDE)

testbed-test: setup ## the tests on a local testbed: those of behaviour side by side, then those that measure
	$(BIN)/python -m pytest -m '($(TESTBED_TESTS)) and not alone' $(SIDE_BY_SIDE) --durations 15
	$(BIN)/python -m pytest -m '($(TESTBED_TESTS)) and alone' --durations 30

check: setup ## lints, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## the numbers that the documentation quotes, measured here
	$(BIN)/python -m tests.bench

clean: ## remove the virtual environment and caches, not the results
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build *.egg-info
