# `make quickstart` and `make test` are all that a new user needs; both set up what they need first.
VENV ?= .venv
BIN := $(VENV)/bin
TESTBED_TESTS ?= testbed
SIDE_BY_SIDE := -n $$(($$(nproc) + 1)) --dist worksteal
# Tests on a testbed wait more than they compute: for links' rates, for each other, for what is sent.
TESTBEDS_SIDE_BY_SIDE := -n $$(($$(nproc) * 2 + 1)) --dist worksteal --durations 15
EXPERIMENT ?= playbooks/experiments/quickstart.yaml
PYTEST ?= $(BIN)/python -m pytest
# `make test FRAMEWORKS=` leaves out the environments of Horovod and TensorFlow; their tests are skipped then.
FRAMEWORKS ?= frameworks
TO ?= build/release
# `make test VARIANTS=all` runs what `make test-variants` does, too.
VARIANTS ?=
OF_VARIANTS := $(if $(VARIANTS),, and not variants)
# pytest with the tests of some marks; set-up and they go on while what is left of the frameworks is built
side_by_side = $(if $(FRAMEWORKS),VENV=$(VENV) tests/beside-frameworks $(1) $(PYTEST),$(PYTEST) -m $(1)) $(TESTBEDS_SIDE_BY_SIDE)
SET_UP := $(if $(FRAMEWORKS),,setup-tests)

# Tests start thousands of processes of Python: their byte code is kept, whatever the shell says of it.
test unit testbed-test test-variants: export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-tests frameworks quickstart test unit testbed-test test-variants check docs bench release clean

help: ## tell what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: system packages, $(VENV), Python packages
	@VENV=$(VENV) playbooks/hosts/prepare-this-machine

setup-tests: ## install also what the tests need
	@VENV=$(VENV) playbooks/hosts/prepare-this-machine --tests

frameworks: ## build the environments of Horovod and TensorFlow into a cache, once (minutes)
	@playbooks/hosts/prepare-frameworks

# Status 3 is that of runs which were measured whole and are not valid: the installation works, and the last lines say why.
quickstart: setup ## run the first experiment on hosts of this machine
	@$(BIN)/orch run $(EXPERIMENT) --local || { status=$$?; [ $$status = 3 ] || exit $$status; }

test: $(SET_UP) ## the tests, those on a local testbed too; of variants one each
	$(call side_by_side,'not alone$(OF_VARIANTS)')
	$(PYTEST) tests/testbed -m 'alone$(OF_VARIANTS)' --durations 30

unit: setup-tests ## the tests that need no testbed
	$(PYTEST) --ignore tests/testbed $(SIDE_BY_SIDE)

testbed-test: $(SET_UP) ## the tests on a local testbed: those of behaviour side by side, then those that measure
	$(PYTEST) tests/testbed -m '($(TESTBED_TESTS)) and not alone and not variants' $(TESTBEDS_SIDE_BY_SIDE)
	$(PYTEST) tests/testbed -m '($(TESTBED_TESTS)) and alone and not variants' --durations 30

test-variants: $(SET_UP) ## further variants of what `make test` tries one of: frameworks' modes, algorithms, patterns
	$(call side_by_side,'not alone and variants') tests/testbed
	$(PYTEST) tests/testbed -m 'alone and variants' --durations 30

check: setup docs ## lints, types, import contracts, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup ## the documentation as a site in build/docs, to be opened from disk; a dead link or an unlisted page ends it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "make: open build/docs/index.html"

bench: setup ## the numbers that the documentation quotes, measured here
	$(BIN)/python -m tests.bench

release: setup ## what docs/releasing.md says: built twice, compared, with checksums in TO; KEY=... signs and tags
	@PYTHON=$(BIN)/python .ci/release $(TO) $(KEY)

clean: ## remove the virtual environment and caches, not the results
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build *.egg-info
