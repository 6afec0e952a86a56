#!/usr/bin/env bash
# Runs every test: C++ (plain, ASan+UBSan, TSan), the fuzzer, Python, the installed package,
# formatting, layers. Ends with how many steps passed and non-zero if one failed.
# `scripts/test.sh STEP...` runs some of the steps.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"

configure_and_build() {  # preset, further cmake arguments
  cmake --preset "$1" "${@:2}" >"build/$1.log" 2>&1 || { cat "build/$1.log"; return 1; }
  cmake --build --preset "$1"
}

step_layers() { scripts/check_layers.py; }

step_format() {
  ruff format --check python tests benchmarks examples scripts && ruff check python tests benchmarks examples scripts &&
    find src include tests fuzz benchmarks examples \( -name '*.h' -o -name '*.cpp' -o -name '*.cc' \) -print0 |
    xargs -0 clang-format --dry-run --Werror
}

step_build() { configure_and_build dev; }

step_cpp() { configure_and_build dev && ctest --preset dev; }

step_tidy() {
  # The translation units of src/, two at a time; .clang-tidy has the checks.
  find src \( -path src/device/cuda -o -name 'nvinfer_shim.cpp' -o -name 'register.cpp' -o -path src/python \) -prune \
    -o -name '*.cpp' -print0 | xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p build/dev 2> >(grep -v 'warnings generated' >&2)
}

# Sanitized: the core, and the delegate's tests with the models of the plain build. ExecuTorch's
# own libraries aren't instrumented; scripts/tsan.supp names them.
step_asan() {
  configure_and_build asan-ubsan &&
    ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS="suppressions=$PWD/scripts/lsan.supp" ctest --preset asan-ubsan
}
step_tsan() {
  configure_and_build tsan &&
    TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.supp halt_on_error=1" ctest --preset tsan
}

step_fuzz() { configure_and_build fuzz && fuzz/run.sh 30; }

step_package() { scripts/test_package.sh; }

step_python() { python -m pytest -q; }

run_steps() {  # One after the other; the failed ones are listed in build/failed.
  local step start
  for step in "$@"; do
    printf '\n==> %s\n' "$step"
    start=$SECONDS
    if "step_$step"; then
      echo "$step" >>build/passed
      echo "<== $step passed in $((SECONDS - start)) s"
    else
      echo "$step" >>build/failed
      echo "<== $step FAILED after $((SECONDS - start)) s"
    fi
  done
}

mkdir -p build
: >build/passed
: >build/failed
if [ $# -gt 0 ]; then
  run_steps "$@"
else
  run_steps layers format build
  # Python's tests are one process at a time: beside them, the rest. Their lines start with "python |".
  run_steps python 2>&1 | sed -u 's/^/python | /' &
  run_steps cpp package asan tsan fuzz tidy
  wait
fi

echo
failed=$(wc -l <build/failed)
[ "$failed" -eq 0 ] || echo "failed steps: $(tr '\n' ' ' <build/failed)"
echo "$(wc -l <build/passed) passed, $failed failed"
[ "$failed" -eq 0 ]
