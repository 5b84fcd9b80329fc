# Everything that a newcomer needs. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help run build test fmt lint clean setup

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The debug profile: it is quicker to build, and the tests use the same artifacts.
run: setup ## builds all and serves the demo
	@cargo xtask site
	@cargo build --bin sendonce
	@exec scripts/demo.sh target/debug/sendonce

build: setup ## target/release/sendonce and target/site
	@cargo xtask site
	@cargo build --release --bin sendonce

test: ## formatting, lints, all tests, browser tests
	@scripts/test.sh

fmt: ## formats the sources
	@cargo fmt --all

lint: setup ## clippy for the server and for the browser bundle
	@scripts/test.sh lint

clean: ## removes what was built
	@cargo clean
	@rm -rf end2end/node_modules end2end/results

setup: ## installs what is missing; quick when nothing is
	@scripts/setup.sh
