# Every command a contributor needs. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CRD := crds/llmservices.llmservice.io.yaml
CODE := operator testing tests bench examples
# Tests mostly wait, so more of them than there are cores; each has an API server of its own.
JOBS ?= 4

.DEFAULT_GOAL := help
.PHONY: help install lock generate manifests format lint types contracts generated verify test soak test-engines test-ray e2e test-all demo bench reliability controlplane clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Make .venv with everything that development needs

$(INSTALLED): requirements/dev.txt testing/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which with make PYTHON=python3.11 ...")'
	@echo "Installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e testing
	@touch $@

lock: install ## Pin all dependencies anew (requirements/*.txt)
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml testing/pyproject.toml --group dev --generate-hashes --no-annotate --no-emit-index-url --python-version 3.11 -o requirements/dev.txt
	echo hatchling | $(BIN)/uv pip compile --quiet --upgrade - -c requirements/dev.txt --generate-hashes --no-annotate --no-emit-index-url --python-version 3.11 -o requirements/build.txt
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml -c requirements/dev.txt --generate-hashes --no-annotate --no-emit-index-url --python-version 3.11 -o requirements/runtime.txt

generate: install ## Write what is generated: the CRD from operator/llmservice/api.py, and then the manifests
	@$(BIN)/llmservice crd > $(CRD).new && mv $(CRD).new $(CRD)
	@$(MAKE) --no-print-directory manifests

manifests: install ## Write manifests/install.yaml and the chart's copies from manifests/ and crds/
	@$(BIN)/python -m llmservice_testing.manifests

format: install ## Format all code, and mend what the linter can mend
	@$(BIN)/ruff check --fix-only --quiet $(CODE)
	@$(BIN)/ruff format $(CODE)

lint: install
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "Run: make format"; exit 1; }
	@$(BIN)/ruff check $(CODE)

types: install
	@$(BIN)/mypy
	@$(BIN)/mypy tests bench

contracts: install
	@$(BIN)/lint-imports --no-cache

generated: install
	@$(BIN)/llmservice crd | diff -u $(CRD) - || { echo "Run: make generate"; exit 1; }
	@$(BIN)/python -m llmservice_testing.manifests --check || { echo "Run: make manifests"; exit 1; }

verify: lint types contracts generated ## Check format, lint, types, import contracts and generated files

test: install ## Unit, property and integration tests, on a real API server and simulated engines; JOBS=4 at once
	@$(BIN)/python -m llmservice_testing.controlplane --assets-only
	@$(BIN)/python -m llmservice_testing.gitops
	@$(BIN)/pytest -m "not real_engine and not real_ray and not long" --numprocesses $(JOBS) --dist loadfile

soak: install ## The state machine of the operator with many more examples, chosen anew each time; prints progress
	@LLMSERVICE_SOAK=1 $(BIN)/pytest tests/property -s --timeout=0

test-engines: install ## The engine contract, and the operator, against real vLLM on the CPU (installs it once: 6 GB)
	@$(BIN)/pytest tests/engines -m real_engine

test-ray: install ## The contract, and the operator, against a real Ray Serve LLM application on the CPU (installs it once: 6 GB)
	@$(BIN)/pytest tests/ray -m real_ray

e2e: install ## In a kind cluster, removed afterwards; KIND_NODE_IMAGE=build BASE_IMAGE=build: no registry, VLLM=0: no real engine, KEEP=1: keep it
	@$(if $(filter 0,$(VLLM)),true,$(BIN)/python -m llmservice_testing.vllm install)
	@$(BIN)/python -m llmservice_testing.kind run $(if $(KEEP),--keep) -- $(BIN)/pytest tests/e2e $(if $(filter 0,$(VLLM)),-m "not real_engine")

test-all: test verify test-engines test-ray e2e ## Everything that CI does, and test-ray

demo: install ## Show the main job on a control plane of its own: ENGINES=vllm uses real engines, KEEP=1 keeps it running
	@$(BIN)/python -m llmservice_testing.demo $(if $(ENGINES),--engines $(ENGINES)) $(if $(KEEP),--keep)

bench: install ## Measure against fan-outs by hand, a trainer's client and kubectl | curl; prints ratios
	@$(BIN)/python -m bench

reliability: install ## Run every fault test, those of minutes too, and write the matrix into docs/reliability.md
	@$(BIN)/python -m llmservice_testing.reliability --jobs $(JOBS) --write docs/reliability.md

controlplane: install ## Start an API server to try things on, until Ctrl-C
	@$(BIN)/python -m llmservice_testing.controlplane

clean: ## Remove .venv and everything that tools left; keeps the user's cache
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist .artifacts
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
