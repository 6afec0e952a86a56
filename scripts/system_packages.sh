#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that the build needs, if they are missing.
set -euo pipefail

packages=(g++ make git clang clang-format clang-tidy libclang-rt-14-dev
          nlohmann-json3-dev libfmt-dev libxxhash-dev libcli11-dev libgtest-dev libgmock-dev libbenchmark-dev
          python3-venv)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "Installing system packages: ${missing[*]}"
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "Run as root, or install: ${missing[*]}" >&2; exit 1; }
  sudo="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
