# `make` alone lists what can be done here. Nothing is installed outside .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help setup page wheel runtime run test test-all test-page cross torch picture hours lint format typecheck layers house digests checks bases lock audit clean

PYTHON ?= python3
PYTEST_ARGS ?=
TRIALS ?= 200
UPGRADE ?= --upgrade
# No test takes so long, unless it hangs: those that run the service are given more, for slow and busy machines.
TIMEOUT_SEC := 600
# In a home that is a trap: a test that touches what is the user's own fails its stage. Tests run schemathesis by its
# command, and no process needs its plugin, whose import takes time.
PYTEST = python -m tests.fixtures.trap python -m pytest -p no:schemathesis --timeout $(TIMEOUT_SEC) $(SIDE_BY_SIDE) $(SELECTED) --told $(TESTS_TOLD)
SELECTED := -m 'not long'
# The folders of these kinds of tests: the service's, and those of mallorn-research.
TESTS = $(wildcard $(foreach kind,$(1),tests/$(kind) research/tests/$(kind)))
# Pictures of the pages that tests look at, into build/screenshots: in make test-all, or with PICTURES=all.
PICTURES ?= $(if $(SELECTED),,all)
# What tests/stages.py reads: how the tests of a stage ended; what was left out.
TESTS_TOLD := build/tests-told.json
LEFT_OUT := build/left-out
LEAVE_OUT = mkdir -p build && echo $@ >> $(LEFT_OUT)
STAGES := checks $(addprefix test-,unit simulation integration edges browser outside)
TORCH := torch==2.13.0
PLAYWRIGHT := playwright==1.65.2
ZIGLANG := ziglang==0.16.0
UV := uv==0.13.8
BUILD := build==1.6.1 twine==7.0.0 cyclonedx-bom==7.5.0
PIP_AUDIT := pip-audit==2.10.1
CMAKE := cmake==4.4.5

# TVM links its kernels with the first of g++, gcc, clang and cc on PATH: .venv/bin/cc is there where the system has none.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Tests start Python hundreds of times: it compiles our source once, also where an image says otherwise.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: .venv/ready ## create .venv with the exact versions of requirements/lock.txt

.venv/ready: requirements/lock.txt pyproject.toml research/pyproject.toml
	@missing() { printf '\nmallorn: %s\n  %s\n\n' "$$1" "$$2" >&2; exit 1; }
	if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
	  command -v $(PYTHON) >/dev/null || missing '$(PYTHON) is not installed. Install it with' \
	    'sudo apt-get install -y python3 python3-venv'
	  version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	  case $$version in 3.11|3.12|3.13) ;; *) missing "Python 3.11, 3.12 or 3.13 is needed, $(PYTHON) is $$version. Try" \
	    'sudo apt-get install -y python3.11 python3.11-venv && make setup PYTHON=python3.11' ;; esac
	  $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing "Python's venv module is missing. Install it with" \
	    "sudo apt-get install -y python$$version-venv"
	  rm -rf .venv
	  $(PYTHON) -m venv .venv
	fi
	.venv/bin/python -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null || missing \
	  'The OpenMP runtime, which lightgbm needs, is missing. Install it with' 'sudo apt-get install -y libgomp1'
	mkdir -p build
	services/dashboard/node.sh build > build/page.log 2>&1 & page=$$!
	echo 'Installing requirements/lock.txt into .venv (some minutes the first time)'
	pip='.venv/bin/python -m pip --disable-pip-version-check --quiet'
	$$pip install -r requirements/lock.txt
	$$pip install --no-deps --no-build-isolation -e . -e ./research -e ./runtime
	if ! command -v cc g++ gcc clang >/dev/null; then
	  $$pip install $(ZIGLANG)
	  printf '#!/bin/sh\nexec "$$(dirname "$$0")/python" -m ziglang cc "$$@"\n' > .venv/bin/cc
	  chmod +x .venv/bin/cc
	  echo 'int nothing(void) { return 0; }' > build/nothing.c
	  .venv/bin/cc -shared -fPIC -o build/nothing.so build/nothing.c  # the first link makes what all others need
	  echo 'No C compiler here: .venv/bin/cc is zig cc, and TVM finds it while .venv/bin is on PATH.'
	fi
	wait $$page || echo 'The page is not built, everything else is: build/page.log says why, make page tries again.'
	touch $@

page: ## build the web page, with Node 20.19 or newer or, where there is none, with Node from PyPI
	@services/dashboard/node.sh build

wheel: setup page ## build dist/: wheel and sdist with the page inside, a list of components (SBOM), mallorn-research, mallorn-runtime
	@test -x build/wheel/bin/twine || {
	  $(PYTHON) -m venv build/wheel
	  build/wheel/bin/python -m pip --disable-pip-version-check --quiet install $(BUILD)
	}
	rm -rf dist
	build/wheel/bin/python -m build --outdir dist . > build/wheel.log 2>&1 || { tail -n 20 build/wheel.log; exit 1; }
	build/wheel/bin/python -m build --outdir dist research >> build/wheel.log 2>&1 || { tail -n 20 build/wheel.log; exit 1; }
	$(MAKE) --no-print-directory runtime
	version=$$(python -c 'from mallorn.core.version import VERSION; print(VERSION)')
	PYTHONWARNINGS=ignore build/wheel/bin/cyclonedx-py requirements requirements/lock.txt --pyproject pyproject.toml --mc-type application \
	  --output-file dist/mallorn-$$version.cdx.json
	build/wheel/bin/twine check --strict dist/*.whl dist/*.tar.gz
	ls -sh dist

run: setup ## tune the example model on this machine and print what it won
	@python examples/build.py mlp -o build/models
	mallorn tune build/models/mlp.onnx --target local --trials $(TRIALS) --out build/mlp-tuned
	echo 'So that your shell finds mallorn:   source .venv/bin/activate'

test: setup ## lint, types, layers, then every test, cheap ones first; what fails hides nothing that comes after it
	@python -m tests.stages $(if $(SELECTED),test,test-all) $(STAGES)

test-all: ## all that make test does, and what takes long and has a shorter test there
	@$(MAKE) --no-print-directory test SELECTED=

test-page: setup
	@services/dashboard/node.sh test --if-here || { [ $$? = 75 ] && $(LEAVE_OUT); }

test-integration test-migration test-edges test-browser test-outside test-acceptance test-faults test-hours: TIMEOUT_SEC := 1800
# Nothing here asserts a time, and whole models are timed one at a time a host, so tests may share the machine.
test-simulation test-contract: SIDE_BY_SIDE := -n auto --maxprocesses 4
# Coordinators and children begin and end here, which is idle time; to collect so many tests takes each worker seconds.
test-unit: SIDE_BY_SIDE := -n 3 --dist loadfile
# What the tests of a file share is started once (tests/fixtures/scheduling.py).
test-browser: SIDE_BY_SIDE := -n 2 --dist loadfile
# Jobs wait for one another's timings, for leases and for parts that start.
test-outside test-acceptance: SIDE_BY_SIDE := -n 3 --dist loadfile
# They wait for databases, servers and children, too.
test-integration: SIDE_BY_SIDE := -n 4 --dist loadfile
test-faults test-edges: SIDE_BY_SIDE := -n 4 --dist loadfile
test-migration test-hours test-neural: SIDE_BY_SIDE := -n 2

test-%: setup ## one kind of tests: unit, simulation, integration, contract, migration, acceptance, faults or hours
	@$(PYTEST) $(call TESTS,$*) $(PYTEST_ARGS)

test-edges: setup ## what waits more than it computes, side by side: contract, migration and faults
	@$(PYTEST) $(call TESTS,contract migration faults) $(PYTEST_ARGS)

test-outside test-acceptance: .venv/cmake cross

.venv/cmake: .venv/ready
	@command -v cmake >/dev/null || .venv/bin/python -m pip --disable-pip-version-check --quiet install $(CMAKE)
	touch $@

cross: setup ## the linker, and all that a device for aarch64 needs, on which tests run what was compiled for it
	@if [ ! build/aarch64/ready -nt requirements/device.txt ]; then
	  rm -rf build/aarch64
	  pip='.venv/bin/python -m pip --disable-pip-version-check --quiet'
	  wheels=$$(sed -n "/win32/d; />= '3.12'/d; s/^\([a-z0-9.-]*==[^ ;]*\).*/\1/p" requirements/device.txt)
	  $$pip install $(ZIGLANG) && $$pip download --no-deps --only-binary=:all: --python-version 3.11 \
	    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 \
	    -d build/aarch64/wheels $$wheels && .venv/bin/python -m tests.fixtures.emulated || \
	    { echo 'Not fetched; the tests that need it say so.'; exit 0; }
	  for wheel in build/aarch64/wheels/*.whl; do .venv/bin/python -m zipfile -e $$wheel build/aarch64; done
	  touch build/aarch64/ready
	fi

test-outside: setup ## the service from outside: acceptance and hours
	@$(PYTEST) $(call TESTS,acceptance hours) $(PYTEST_ARGS)

torch: setup ## install torch, which the neural cost models need, into .venv
	@if ! .venv/bin/python -c 'from importlib.metadata import version; "torch==" + version("torch").split("+")[0] == "$(TORCH)" or exit(1)' 2>/dev/null; then
	  echo 'Installing $(TORCH) into .venv (some minutes the first time)'
	  .venv/bin/python -m pip --disable-pip-version-check --quiet install $(TORCH)
	fi

test-neural: torch ## the cost models that need torch
	@$(PYTEST) $(call TESTS,neural) $(PYTEST_ARGS)

test-browser: setup ## the page in a real Chromium, where one is installed and starts
	@if ! CHROMIUM=$$(services/dashboard/browser.sh); then
	  echo 'Left out, for want of a browser: apt-get install chromium fonts-liberation'
	  $(LEAVE_OUT)
	  exit 0
	fi
	export CHROMIUM PICTURES='$(PICTURES)'
	services/dashboard/node.sh build || { [ $$? = 75 ] || exit 1; echo 'Left out, for want of the page: tests/browser'; $(LEAVE_OUT); exit 0; }
	.venv/bin/python -m pip --disable-pip-version-check --quiet install $(PLAYWRIGHT)
	$(PYTEST) tests/browser $(PYTEST_ARGS)

picture: setup ## take the picture in README.md anew, of a tuning that was recorded
	@services/dashboard/node.sh build
	.venv/bin/python -m pip --disable-pip-version-check --quiet install $(PLAYWRIGHT)
	python -m tests.browser.picture docs/picture.png

hours: setup ## type docs/first-hours anew and write what is printed into it
	@for page in engineer platform researcher bad-day; do python -m tests.fixtures.transcript docs/first-hours/$$page.md; done

checks: setup ## lint, types, layers and the page's own tests, two at a time
	@$(MAKE) --no-print-directory --jobs 2 --keep-going --output-sync lint typecheck layers test-page

lint: setup ## ruff: rules and format
	@ruff check .
	ruff format --check --quiet . || { echo 'Run make format.'; exit 1; }

format: setup ## let ruff mend and format the code
	@ruff check --fix .
	ruff format .

typecheck: setup ## mypy, strict
	@mypy
	mypy examples
	mypy runtime/mallorn_runtime

layers: setup ## import-linter: who may import whom; and make house
	@failed=0
	lint-imports || failed=1
	python -m benchmarks.house_budget || failed=1
	exit $$failed

digests: setup ## compare all that is compiled for the example networks with the committed digests (COMMIT=... prints texts, THIRD=1 takes a third)
	@python -m benchmarks.digests $(if $(THIRD),--third) $(if $(COMMIT),--against $(COMMIT))

house: setup ## figures of the house against their budgets in house.toml
	@python -m benchmarks.house_budget

runtime: setup ## build the wheel of mallorn-runtime into dist, with TVM's runtime out of .venv
	@rm -rf runtime/build
	python -m pip --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation --wheel-dir dist ./runtime
	ls dist/mallorn_runtime-*.whl

bases: setup ## fit anew the bases that come along, from the measurements that do (docs/knowledge.md)
	@python -m benchmarks.ship

lock: ## write the files of requirements/ anew from PyPI: all of it for a checkout, and one file for each image
	@$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip --disable-pip-version-check --quiet install $(UV)
	compile="build/lock/bin/uv pip compile --universal --python-version 3.11 --quiet --generate-hashes --no-annotate \
	  --custom-compile-command 'make lock'"
	eval "$$compile" pyproject.toml --extra fleet --group dev $(UPGRADE) -o requirements/lock.txt
	sed '/--hash/d; s/ \\$$//' requirements/lock.txt > build/lock/versions.txt
	for role in 'service server fleet' 'worker worker fleet cross' 'device device'; do
	  set -- $$role
	  $(PYTHON) requirements/role.py "$${@:2}" > build/lock/role.in
	  eval "$$compile" build/lock/role.in -c build/lock/versions.txt -o requirements/$$1.txt
	done
	! grep -nEi '^torch==|^nvidia-|file://' requirements/*.txt

audit: ## compare requirements/lock.txt with the vulnerabilities that PyPI knows (needs the internet)
	@if ! $(PYTHON) -c 'from urllib.request import urlopen; urlopen("https://pypi.org/pypi/pip/24.0/json", timeout=30)' 2>/dev/null; then
	  echo 'Nothing was compared: https://pypi.org/pypi/pip/24.0/json cannot be had from here. Run make audit where the internet is.' >&2
	  exit 1
	fi
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip --disable-pip-version-check --quiet install $(PIP_AUDIT)
	build/audit/bin/pip-audit --requirement requirements/lock.txt --no-deps --disable-pip --progress-spinner off

clean: ## remove what was built and the caches, but not .venv
	@rm -rf build dist research/build runtime/build services/dashboard/static services/dashboard/web/node_modules ./*.egg-info research/*.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
