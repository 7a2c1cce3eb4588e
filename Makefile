# Every command a user or a developer needs. `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Cargo's default output folder is `target/`, which here is a crate: never let it be used.
export CARGO_TARGET_DIR := $(CURDIR)/build
export FOREBAY_BIN := $(CURDIR)/build/release/forebay
# AIStore's aisnode and ishard binaries, to be measured beside this one by `make bench`.
export AISNODE
export ISHARD

# Most Rust tests wait for timers, processes and disks: three of them per core keep the cores busy.
export RUST_TEST_THREADS ?= $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN))))

# More arguments for every cargo call and for pytest, for example
#   make test-py PYTEST_ARGS="-k sampler -x"
#   make bench AISNODE=… BENCH_ARGS="--only PUT --rounds 5"
CARGO_FLAGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
#   make compare COMPARE_ARGS="--quick"         make compare COMPARE_ARGS="--only clouds --resume"
COMPARE_ARGS ?=
# Rows that `make faults` runs: all, or three of 20 s that change with each commit.
FAULTS ?= all
# Guards that `make mutants` removes: all, or these ids.
MUTANTS ?=
# Tests that `make test-long` runs: all, or one in turn that changes with each commit.
LONG ?= all

# Exports the clouds that tests talk to. Without one they say so and skip, unless
# FOREBAY_REQUIRE_MINIO, FOREBAY_REQUIRE_FAKE_GCS or FOREBAY_REQUIRE_AZURITE is set, as all are in
# .ci/run.
with_clouds = rc=0; FOREBAY_MINIO="$$(ci/minio.sh)" || rc=$$?; \
	if [ $$rc = 0 ]; then export FOREBAY_MINIO; \
	elif [ $$rc = 3 ] && [ -z "$${FOREBAY_REQUIRE_MINIO:-}" ]; then unset FOREBAY_MINIO; \
	else exit $$rc; fi; \
	rc=0; FOREBAY_FAKE_GCS="$$(ci/fake_gcs.sh)" || rc=$$?; \
	if [ $$rc = 0 ]; then export FOREBAY_FAKE_GCS; \
	elif [ $$rc = 3 ] && [ -z "$${FOREBAY_REQUIRE_FAKE_GCS:-}" ]; then unset FOREBAY_FAKE_GCS; \
	else exit $$rc; fi; \
	rc=0; FOREBAY_AZURITE="$$(ci/azurite.sh)" || rc=$$?; \
	if [ $$rc = 0 ]; then export FOREBAY_AZURITE; \
	elif [ $$rc = 3 ] && [ -z "$${FOREBAY_REQUIRE_AZURITE:-}" ]; then unset FOREBAY_AZURITE; \
	else exit $$rc; fi

.PHONY: help
help: ## List these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: binary
binary: ## Build build/release/forebay
	cargo build --release $(CARGO_FLAGS) -p forebay-cli

# Before builds with the profile `dist`, so that variables for other builds of this shell do not change it.
own_profile = unset $${!CARGO_PROFILE_@}

.PHONY: shipped
shipped: ## Build build/dist/forebay, the program that is shipped and measured (takes minutes)
	@$(own_profile); ci/dist/program.sh

.PHONY: python
python: ## Build both Python packages into build/venv
	@ci/install_python.sh

.PHONY: demo
demo: binary python ## Train a small model from a bucket, through a cluster of 1 + 3
	build/venv/bin/python examples/demo.py --bin build/release/forebay --dir build/demo

.PHONY: demo-s3
demo-s3: binary python ## The same, with the bucket on MinIO
	minio="$$(ci/minio.sh)" && build/venv/bin/python examples/demo.py \
		--bin build/release/forebay --dir build/demo --backend s3 --minio "$$minio"

.PHONY: test
test: test-rust test-py ## Run all tests that need no special machine

.PHONY: test-build
test-build: binary ## Compile the tests in Rust
	cargo test --release $(CARGO_FLAGS) --workspace --exclude forebay-sdk --no-run

.PHONY: test-rust
test-rust: binary ## Unit tests and black-box tests over real processes
	@$(with_clouds); ci/test_rust.sh

.PHONY: test-py
test-py: binary python ## Python packages, other clients, the README
	@$(with_clouds); ci/test_python.sh $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: binary ## In minutes: unit tests of what changed, one black-box cluster, the Python core
	@$(with_clouds); ci/test_fast.sh

.PHONY: test-long
test-long: binary python ## Run the tests that take too long for every commit, or LONG=turn: one of them
	@$(with_clouds); ci/test_long.sh $(LONG) $(PYTEST_ARGS)

.PHONY: soak
soak: binary python ## Load a cluster for two hours, or SOAK_SECONDS=600; JSON in build/soak.json
	build/venv/bin/python tests/python/forebay_soak.py --seconds $(or $(SOAK_SECONDS),7200)

.PHONY: api-test
api-test: binary python ## Send requests by the OpenAPI document, invalid ones too, to clusters (minutes)
	FOREBAY_TEST_LONG=1 build/venv/bin/python -m pytest tests/python/test_openapi.py -m long $(PYTEST_ARGS)

.PHONY: sim
sim: ## Run the cluster's rules under a simulator: SEEDS=1..1000, or SEED=17 with its last events
	cargo run --release $(CARGO_FLAGS) -p forebay-sim -- \
		$(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1..1000) --all)

.PHONY: fuzz
fuzz: ## Feed mutated input to the parsers: FUZZ=tar|…|all|turn, FUZZ_SECONDS=60 for each
	@ci/fuzz.sh "$(or $(FUZZ),all)" "$(or $(FUZZ_SECONDS),60)"

.PHONY: mutants
mutants: python ## Remove each guard of docs/security-tests.md once; its tests must fail (half an hour)
	@ci/helm.sh >/dev/null && FOREBAY_REQUIRE_HELM=1 ci/mutants/run.py $(MUTANTS)

.PHONY: faults
faults: binary ## Break machines, disks and networks under load; needs root; JSON in build/faults
	@ci/faults.sh $(FAULTS)

.PHONY: upgrade-test
upgrade-test: binary ## Upgrade a cluster under load from FROM=commit|program; needs root
	@ci/upgrade.sh "$(FROM)"

.PHONY: pods-test
pods-test: binary python ## Run the pods of the chart under load: restart, scale, upgrade; needs root
	@$(with_clouds); FOREBAY_TEST_LONG=1 build/venv/bin/python -m pytest tests/python/test_pods*.py -m long -s $(PYTEST_ARGS)

.PHONY: check
check: ## Format, lints and house rules; changes nothing
	cargo fmt --all --check
	cargo clippy --release $(CARGO_FLAGS) --workspace --all-targets -- -D warnings
	python3 ci/check_deps.py
	python3 ci/check_supply.py
	python3 ci/check_house.py
	python3 ci/check_wire_names.py
	python3 ci/check_words.py
	python3 ci/check_circles.py

.PHONY: deny
deny: ## Check licences, bans and sources of all crates with cargo-deny (builds it once, minutes)
	deny=$$(ci/cargo_deny.sh); "$$deny" --log-level error check --hide-inclusion-graph licenses bans sources
	@echo "advisories: not run: their database is a git repository; run cargo deny check advisories"

.PHONY: fix
fix: ## Format, and apply the fixes of the lints
	cargo fmt --all
	cargo clippy --release $(CARGO_FLAGS) --workspace --all-targets --fix --allow-dirty --allow-staged

.PHONY: docs
docs: ## Generate docs/cli.md, docs/configuration.md, docs/metrics.md and the dashboards
	FOREBAY_UPDATE_DOCS=1 cargo test --release $(CARGO_FLAGS) -p forebay-node --lib config_page
	FOREBAY_UPDATE_DOCS=1 cargo test --release $(CARGO_FLAGS) -p forebay-gateway --lib metrics_page
	FOREBAY_UPDATE_DOCS=1 cargo test --release $(CARGO_FLAGS) -p forebay-cli --bin forebay cli_page
	python3 deploy/grafana/generate.py

.PHONY: bench
bench: shipped ## Measure beside the peers that are installed; JSON in build/bench
	$(own_profile); . ci/dist/build_env.sh && cargo build --profile dist $(CARGO_FLAGS) -p forebay-load
	@$(own_profile); . ci/dist/build_env.sh && PROFILE=dist ci/install_python.sh
	@minio="$$(ci/minio.sh)" || minio=; \
	build/venv/bin/python bench/store.py --bin build/dist/forebay --out build/bench \
	  --load build/dist/forebay-load $${minio:+--minio "$$minio"} $(BENCH_ARGS); \
	build/venv/bin/python bench/batch.py --bin build/dist/forebay --out build/bench; \
	build/venv/bin/python bench/crowd.py --bin build/dist/forebay --out build/bench; \
	build/venv/bin/python bench/cost.py --bin build/dist/forebay --out build/bench \
	  --load build/dist/forebay-load; \
	fake_gcs="$$(ci/fake_gcs.sh)" || fake_gcs=; \
	build/venv/bin/python bench/clouds.py --bin build/dist/forebay --out build/bench \
	  $${minio:+--minio "$$minio"} $${fake_gcs:+--fake-gcs "$$fake_gcs"}; \
	build/venv/bin/python bench/feed.py --bin build/dist/forebay --out build/bench \
	  $${minio:+--minio "$$minio"} $${fake_gcs:+--fake-gcs "$$fake_gcs"}; \
	build/venv/bin/python bench/checkpoint.py --bin build/dist/forebay --out build/bench \
	  $${minio:+--minio "$$minio"}

.PHONY: compare
compare: shipped ## Measure beside all peers: one table, one JSON in build/compare (70 minutes)
	$(own_profile); . ci/dist/build_env.sh && cargo build --profile dist $(CARGO_FLAGS) -p forebay-load
	@$(own_profile); . ci/dist/build_env.sh && PROFILE=dist ci/install_python.sh
	@PYTHONPATH=bench build/venv/bin/python -m compare --bin build/dist/forebay $(COMPARE_ARGS)

.PHONY: compare-pages
compare-pages: python ## Write docs/performance.md and the README's results from build/compare/results.json
	@PYTHONPATH=bench build/venv/bin/python -m compare pages build/compare/results.json .

.PHONY: release
release: shipped ## One binary in build/release, Python wheels in build/wheels
	@mkdir -p build/release && install -m 755 build/dist/forebay build/release/forebay
	@$(own_profile); ci/wheels.sh
	@ls -l build/release/forebay

.PHONY: dist
dist: ## Everything that is released, in dist; SIGN=KEY signs its checksums (takes minutes)
	@SIGN="$(SIGN)" ci/dist.sh

.PHONY: chart
chart: binary python ## Test the Helm chart, the systemd units, the compose file, dashboards and alerts
	build/venv/bin/python -m pytest tests/python/test_deploy*.py tests/python/test_chart_rights.py \
	  tests/python/test_examples_k8s.py tests/python/test_dashboards.py tests/python/test_alerts.py $(PYTEST_ARGS)

.PHONY: image
image: ## Build build/forebay-image.tar, the container image; no docker needed
	deploy/build-image.sh

.PHONY: book
book: ## Build the documentation as a book, in build/book
	mdbook="$$(ci/mdbook.sh)" && "$$mdbook" build

.PHONY: clean
clean: ## Remove everything that was built here (the cache folder stays)
	rm -rf build dist
