#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that the build needs, if they are missing.
set -euo pipefail

missing_of() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || echo "$package"
  done
}

sudo=""
get() {
  echo "Installing system packages: $*"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "Run as root, or install: $*" >&2; exit 1; }
    sudo="sudo"
  fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

mapfile -t missing < <(missing_of g++ make git clang clang-tidy \
  nlohmann-json3-dev libfmt-dev libxxhash-dev libcli11-dev libgtest-dev libgmock-dev libbenchmark-dev python3-venv)
[ ${#missing[@]} -eq 0 ] || get "${missing[@]}"

# The fuzzer's and sanitizers' runtimes, where clang doesn't bring them (it does on Ubuntu 22.04).
runtimes="libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
if [ -n "$(missing_of "$runtimes")" ] && [ -n "$(apt-cache search --names-only "^$runtimes\$")" ]; then
  get "$runtimes"
fi
