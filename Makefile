# Everything below sets itself up from a bare Python 3.11: `make bench`, `make test`.
#
#   PYTHON=/path/to/python3.11   the interpreter to build on
#   TORCH_INDEX=URL              an extra package index to take PyTorch from, for instance
#                                https://download.pytorch.org/whl/cpu (no CUDA packages)
#   ARGS="..."                   more arguments for the command behind bench, test, perf, peers, check

SHELL := /bin/bash
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?=
ARGS ?=
VENV := .venv
TOX := .venv-tox
PEERS := .venv-peers
RUN := $(VENV)/bin/python

export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifdef TORCH_INDEX
export PIP_EXTRA_INDEX_URL := $(strip $(PIP_EXTRA_INDEX_URL) $(TORCH_INDEX))
endif

.PHONY: help bench test lint check browser results docs peers perf sources lock wheelhouse clean

help:
	@echo 'make bench    run the embedded benchmark and print its leaderboard'
	@echo 'make test     run the tests'
	@echo 'make lint     ruff, mypy and what may import what'
	@echo 'make check    lint, the benchmark, the tests and 37 stored records again (FEDSUB_DATA), in fresh environments (tox)'
	@echo 'make browser  see that there is a Chromium for the tests of the site, or install one'
	@echo 'make results  every page of results/ anew from its records, the site among them'
	@echo 'make docs     the documentation, results/site/docs/index.html'
	@echo 'make peers    time this suite and openfgl-lib, interleaved (results/performance.md)'
	@echo 'make perf     time kernels and rounds, saved for comparison with other commits'
	@echo 'make sources  the list of methods whose records count, after a change that moves no figure'
	@echo 'make lock     the versions and hashes in requirements/ anew from the ranges in setup.cfg'
	@echo 'make wheelhouse  every package that the Dockerfile installs, for a build without a network'
	@echo 'make clean    remove the environments and caches'

bench: $(VENV)/.ready
	$(RUN) -m benchmark --results .cache/bench $(ARGS)

test: $(VENV)/.ready
	$(RUN) -m pytest --numprocesses 3 --dist worksteal $(ARGS)

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

check: $(TOX)/.ready
	$(TOX)/bin/tox run -e lint,quick,py311 $(ARGS)
	@if [ -n "$$FEDSUB_DATA" ]; then \
	    $(TOX)/bin/tox exec -e quick -- python -m benchmark verify 37 --max-seconds 10; \
	else \
	    echo 'verify: skipped, FEDSUB_DATA names no folder of graphs'; \
	fi

# Debian's package where root may install it; else a build of Playwright's, which its own server has to give.
browser:
	@set -e; \
	found() { for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	    if "$$name" --version 2>/dev/null; then return 0; fi; done; return 1; }; \
	if found; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root='sudo -n'; fi; \
	if command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
	    $$as_root apt-get update --quiet && \
	    $$as_root apt-get install --quiet --yes --no-install-recommends chromium || true; \
	    if found; then exit 0; fi; \
	fi; \
	$(MAKE) $(VENV)/.ready && $(RUN) -m playwright install --with-deps chromium

results: $(VENV)/.ready
	$(RUN) -m benchmark report $(ARGS)

docs: $(VENV)/.ready
	$(RUN) -m pip install --quiet --editable '.[docs]'
	PYTHONWARNINGS=ignore NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet

peers: $(VENV)/.ready $(PEERS)/.ready
	$(RUN) -m benchmark study peers $(ARGS)

perf: $(VENV)/.ready
	$(RUN) -m pytest tests/performance --benchmark-autosave $(ARGS)

# pip installs what stands in a lock file and nothing else; torch's build is the index's to choose.
LOCK = $(RUN) -m uv pip compile setup.cfg --python-version 3.11 --generate-hashes --no-emit-package torch \
	--no-header --no-annotate --upgrade --quiet
sources: $(VENV)/.ready
	$(RUN) -c 'from fedsub.benchmark.spec import sources; sources.write()'

lock: $(VENV)/.ready
	$(RUN) -m pip install --quiet uv
	$(LOCK) --extra test --extra lint --output-file requirements/dev.txt
	$(LOCK) --output-file requirements/run.txt
	$(LOCK) --extra test --extra flower --extra mlflow --extra privacy --extra ray --extra tensorboard \
	    --output-file requirements/ci.txt
	sed -nE '/^install_requires/,/^$$/p; /^test =/,/^lint/p' setup.cfg \
	    | sed -nE '/^ +(dgl|numpy|torch)[<=>]/d; s/^ +([A-Za-z])/\1/p' \
	    | $(subst setup.cfg,-,$(LOCK)) requirements/dgl2.in --no-emit-package triton \
	    $(foreach part,cublas cuda-cupti cuda-nvrtc cuda-runtime cudnn cufft curand cusolver cusparse nccl \
	    nvjitlink nvtx,--no-emit-package nvidia-$(part)-cu12) --output-file requirements/dgl2.txt
	echo 'tox>=4.20,<5' | $(subst setup.cfg,-,$(LOCK)) --output-file requirements/tox.txt

wheelhouse: $(VENV)/.ready
	$(RUN) -m pip download --dest wheelhouse --require-hashes --no-deps --requirement requirements/run.txt
	$(RUN) -m pip download --dest wheelhouse torch==2.13.0 'setuptools>=78.1.1'

clean:
	rm -rf $(VENV) $(TOX) $(PEERS) .tox .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: setup.cfg pyproject.toml requirements/dev.txt
	$(call create-environment,$(VENV))
	$(RUN) -m pip install --quiet --require-hashes --no-deps --requirement requirements/dev.txt
	$(RUN) -m pip install --quiet --editable '.[lint,test]'
	@touch $@

$(TOX)/.ready: requirements/tox.txt
	$(call create-environment,$(TOX))
	$(TOX)/bin/python -m pip install --quiet --require-hashes --requirement $<
	@touch $@

# openfgl-lib's own environment, beside ours.
$(PEERS)/.ready: benchmark/studies/peers/requirements.txt
	$(call create-environment,$(PEERS))
	$(PEERS)/bin/python -m pip install --quiet --requirement $<
	@touch $@

# A name on the path is not enough: a version manager's shim may be there with no Python behind it.
define create-environment
@set -e; \
if ! $(1)/bin/python -c 'import pip, sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then \
    found=; \
    for candidate in "$(PYTHON)" python3.11 python3 python; do \
        if [ -n "$$candidate" ] && "$$candidate" -c \
            'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then \
            found=$$candidate; break; \
        fi; \
    done; \
    if [ -z "$$found" ]; then \
        echo 'Python 3.11 with venv was not found: install it, or name it with make PYTHON=/path/to/python3.11' >&2; \
        exit 1; \
    fi; \
    echo "creating $(1) with $$found (the first installation takes a few minutes)"; \
    "$$found" -m venv --clear $(1); \
fi
endef
