# Everything a developer does. `make demo` and `make test` set up what they need in .venv first.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# Tests mostly wait for processes and timers: one more of them at a time than there are cores.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Tests start relume hundreds of times: without its bytecode each start costs 0.7 s of CPU more (measured: 2.3 s and 1.6 s).
export PYTHONDONTWRITEBYTECODE :=
.DEFAULT_GOAL := help

.PHONY: foreign kubernetes compiled hot pure help setup demo test quick check bench lint types contracts generated generate format lock wheel clean

help:  ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "relume needs Python 3.11 or newer; none was found. Set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV): 360 MB of packages, once; it takes one to three minutes."
	@$(PYTHON) -m venv $(VENV) || { echo "Making $(VENV) failed. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(VENV)/.ready hot  ## make .venv with the locked dependencies

hot: $(VENV)/.ready  ## compile the hot path where its sources have changed and there is a compiler
	@$(BIN)/python -m compiling.build --if-possible

kubernetes: setup  ## build the control plane and the Helm that Kubernetes tests run with (once, 5 to 15 minutes; needs Go)
	$(BIN)/python -m tests.support.kube_binary
	$(BIN)/python -m tests.support.helm

foreign: kubernetes  ## build the controllers of JobSet, PyTorchJob, Kueue and LeaderWorkerSet (once, minutes), and run their stories
	$(BIN)/python -m tests.support.kube_foreign
	RELUME_FOREIGN=1 $(BIN)/python -m pytest tests/e2e/test_kubernetes_foreign.py -q

demo: setup  ## the main job on a small real model: zero, cold start, burst, zero; then training lends the GPU (two minutes)
	$(BIN)/relume demo

pure: setup  ## the tests of the runtime with its hot path uncompiled
	RELUME_PURE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" tests/runtime tests/faults/gateway

compiled: setup  ## compile the hot path anew where its sources have changed (a minute)
	@$(BIN)/python -m compiling.build

test: setup  ## all tests that this machine can run; says at the end what was left out
	$(BIN)/python -m deploy.demo.model --quiet
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

trainers: setup  ## the trainer's adapters on real PyTorch, JAX, Transformers, Keras and Lightning (2.3 GB, once)
	@python=$$($(BIN)/python tests/trainers/environment.py) && \
	nice -n 10 $$python -m pytest -c tests/trainers/pytest.ini --rootdir tests/trainers -n 2 --dist loadscope tests/trainers/test_boards.py tests/trainers/test_frameworks.py

tensorflow: setup  ## the same of Keras on TensorFlow's own backend, on Linux on x86 (1.6 GB, once)
	@python=$$($(BIN)/python tests/trainers/environment.py tensorflow) && \
	nice -n 10 $$python -m pytest -c tests/trainers/pytest.ini --rootdir tests/trainers tests/trainers/test_tensorflow.py

quick: setup  ## the tests that take no engine and no time
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow"

check: lint types contracts generated test  ## all that must be right before a commit

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready
	$(BIN)/mypy

contracts: $(VENV)/.ready
	$(BIN)/lint-imports --no-logo

GENERATORS := events.describe deploy.spec.schema deploy.api.openapi deploy.cli.reference deploy.kubernetes.crd \
	deploy.kubernetes.packaging_render
generated: $(VENV)/.ready  ## are the generated files up to date?
	@set -e; for module in $(GENERATORS); do $(BIN)/python -m $$module --check; done

generate: setup  ## write the generated files anew
	@set -e; for module in $(GENERATORS); do $(BIN)/python -m $$module --write; done

format: setup  ## format and sort
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## ratios against yardsticks, in one run
	$(BIN)/python -m bench

lock: setup  ## lock the dependencies anew, with versions and hashes
	$(BIN)/python -m pip install --quiet "uv>=0.13"
	UV="$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header"; \
	$$UV pyproject.toml --output-file requirements/runtime.txt; \
	$$UV --excludes requirements/trainers-without.txt requirements/trainers-wanted.txt --output-file requirements/trainers.txt; \
	$$UV requirements/tensorflow-wanted.txt --output-file requirements/tensorflow.txt; \
	$$UV pyproject.toml --extra llamacpp --extra kafka --extra prometheus --extra kubernetes --extra agent --extra stores --extra hf --group test --group lint --group build --output-file requirements/dev.txt; \
	$$UV --constraint requirements/dev.txt pyproject.toml --extra kafka --extra prometheus --extra kubernetes --extra agent --output-file requirements/image.txt; \
	$$UV --constraint requirements/dev.txt pyproject.toml --group build --output-file requirements/build.txt

wheel: setup  ## build the wheels (relume, relume-trainer) into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . ./packaging/trainer

clean:  ## remove what was built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
