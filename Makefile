# make demo   installs into .venv, builds, and holds two conversations with a real model
# make test   installs, builds, and runs every test
# Both may be run again; what is there already is reused.

.PHONY: demo test bench install system format clean
.DEFAULT_GOAL := demo
MAKEFLAGS += --no-print-directory

PYTHON ?= python3.11
BIN := .venv/bin
export PATH := $(CURDIR)/.venv/bin:$(PATH)

SOURCES := $(shell find src include cmake -type f) CMakeLists.txt pyproject.toml

demo: install
	$(BIN)/etrt demo

test: install
	scripts/test.sh

bench: install
	scripts/bench.sh

install: .venv/etrt.stamp

system:
	scripts/system_packages.sh

.venv/packages.stamp: requirements.txt | system
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --progress-bar on -r requirements.txt
	$(BIN)/python -m pip install --progress-bar on --no-deps -r requirements-no-deps.txt
	@touch $@

# The C++ part is rebuilt by CMake as needed; the Python files are linked, not copied.
.venv/etrt.stamp: .venv/packages.stamp $(SOURCES)
	$(BIN)/python -m pip install --no-build-isolation --no-deps --config-settings=editable.rebuild=false -ve . 
	@touch $@

format:
	$(BIN)/ruff format python tests benchmarks examples scripts
	$(BIN)/ruff check --fix python tests benchmarks examples scripts
	find src include tests fuzz benchmarks examples \( -name '*.h' -o -name '*.cpp' -o -name '*.cc' \) | xargs $(BIN)/clang-format -i

clean:
	rm -rf build .venv/etrt.stamp
