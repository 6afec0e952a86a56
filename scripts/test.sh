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

step_cpp() { configure_and_build dev && ctest --preset dev; }

step_tidy() {
  # The translation units of src/, two at a time; .clang-tidy has the checks.
  find src \( -path src/device/cuda -o -name 'nvinfer_shim.cpp' -o -name 'register.cpp' -o -path src/python \) -prune \
    -o -name '*.cpp' -print0 | xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p build/dev
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

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(layers format cpp package python asan tsan fuzz tidy)

mkdir -p build
passed=0
failed=()
for step in "${steps[@]}"; do
  printf '\n==> [%d/%d] %s\n' $((passed + ${#failed[@]} + 1)) "${#steps[@]}" "$step"
  start=$SECONDS
  if "step_$step"; then
    passed=$((passed + 1))
    echo "<== $step passed in $((SECONDS - start)) s"
  else
    failed+=("$step")
    echo "<== $step FAILED after $((SECONDS - start)) s"
  fi
done

echo
[ ${#failed[@]} -eq 0 ] || echo "failed steps: ${failed[*]}"
echo "$passed passed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ]
