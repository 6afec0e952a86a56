#!/usr/bin/env bash
# Runs the benchmarks; each prints ratios to a baseline that it runs beside.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
mkdir -p build
cmake --preset release -DETRT_TESTS=OFF >build/release.log || { cat build/release.log; exit 1; }
cmake --build --preset release --target delegate_overhead
build/release/benchmarks/delegate_overhead
for benchmark in benchmarks/*.py; do
  [ -f "$benchmark" ] && python "$benchmark"
done
