# SPDX-License-Identifier: MIT
# Two commands on a fresh machine: `make demo` and `make check`. Thin over CMakePresets.json and tools/; all that is
# fetched or built lies under build/. `make help` lists the targets and the variables.

PREFIX ?= /usr/local
DESTDIR ?=
DEMO_MODEL := build/models/smollm2-135m-instruct-q4_1.gguf
BURTHEN := build/release/burthen
FUZZ_SECONDS ?= 60
FUZZ ?=

export LLAMA_CPP_DIR LLAMA_CMAKE_ARGS GGML_NATIVE JOBS

.PHONY: all demo llama-server check package package-check install uninstall bench fuzz truth-full coverage tsan valgrind format lint clean help
.DEFAULT_GOAL := all

all: ## set up what is missing and build burthen
	@sh tools/setup.sh build
	@sh tools/build.sh release burthen burthen_static

demo: ## the same, then run the demo model in 96 MiB
	@sh tools/setup.sh demo
	@sh tools/build.sh release burthen burthen_static
	$(BURTHEN) run $(DEMO_MODEL) --ram-budget 96M -c 512 -n 64 -p "A ship can carry only so much because"

llama-server: ## llama.cpp's server and tools, which `burthen serve` and `exec` start (minutes)
	@sh tools/setup.sh tools
	@sh tools/build.sh release burthen burthen_static

check: ## set up, format, lint, and the whole test suite
	@sh tools/check.sh

package: ## build/package/burthen_VERSION_amd64.deb, for every processor (docs/packaging.md; half an hour)
	@sh tools/package.sh

package-check: package ## the package and the README in fresh Debian 12 and 13 roots (as root; needs mmdebstrap, lintian)
	@lintian --allow-root --fail-on error,warning build/package/burthen_*.deb
	@sh tools/try-package.sh
	@sh tools/try-readme.sh

install: ## install to DESTDIR and PREFIX (/usr/local)
	@[ -x $(BURTHEN) ] || $(MAKE) all
	@sh tools/install.sh build/release "$(DESTDIR)" "$(PREFIX)"

uninstall: ## remove what the last install put under PREFIX
	@sh tools/uninstall.sh build/release "$(DESTDIR)" "$(PREFIX)"

bench: ## every measurement of bench/ (long; the numbers of docs/measurements.md)
	@sh tools/setup.sh bench
	@sh tools/build.sh release burthen
	@sh tools/bench.sh

fuzz: ## each libFuzzer program for FUZZ_SECONDS (60), or those that FUZZ names
	@sh tools/setup.sh check
	@sh tools/build.sh fuzz fuzzers
	@sh tools/fuzz.sh build/fuzz $(FUZZ_SECONDS) $(FUZZ)

truth-full: ## the proof that the budget is kept: toys, and five models x 8 budgets (an hour or two; restartable)
	@sh tools/setup.sh check
	@python3 tests/support/make_models.py
	@sh tools/build.sh release burthen
	@sh tools/truth.sh

coverage: ## lines of src/ that the quick tests reach; fails under 95 % in base, probe, model, plan, memory (minutes)
	@sh tools/setup.sh coverage
	@sh tools/build.sh coverage
	@sh tools/coverage.sh

tsan: ## the thread sanitizer on what threads share, and on the router (a quarter of an hour)
	@sh tools/setup.sh check
	@sh tools/build.sh tsan
	@sh tools/tsan.sh

valgrind: ## memcheck on the tests of the pure parts (minutes)
	@sh tools/setup.sh valgrind
	@sh tools/build.sh dev
	@sh tools/valgrind.sh

format: ## rewrite our C files as clang-format 19 wants them
	@sh tools/check-format.sh --fix

lint: ## clang-tidy 19 on src/
	@sh tools/setup.sh check
	@sh tools/build.sh release burthen
	@sh tools/lint.sh build/release

clean: ## remove our own builds; downloads, models and llama.cpp stay (rm -rf build removes them too)
	rm -rf build/release build/package build/dev build/asan build/tsan build/fuzz build/coverage

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PREFIX=DIR DESTDIR=DIR   where install goes"
	@echo "  LLAMA_CPP_DIR=DIR        build against this source tree of llama.cpp, fetch none"
	@echo "  LLAMA_CMAKE_ARGS=...     more options for llama.cpp's build, for example -DGGML_CUDA=ON"
	@echo "  GGML_NATIVE=OFF          do not tune for this processor"
	@echo "  FUZZ=\"NAME ...\"          fuzz these alone (docs/testing.md has them)"
	@echo "  JOBS=N                   parallel jobs"
