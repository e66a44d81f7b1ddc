# Shared by tools/quickstart, tools/build and tools/test. Sourced, not run.
set -euo pipefail

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# What is downloaded and unpacked lives here, outside the tree, so that a fresh clone finds it again.
cache_dir=${LLMRT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/llmrt}
mkdir -p "$cache_dir"

if [[ -t 2 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

say() { printf '%s==>%s %s\n' "$bold" "$plain" "$*" >&2; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Runs a command as root: directly, or through sudo.
as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "missing rights: '$*' needs root: expected root or sudo, found neither"
  fi
}

# Compilers need about 1.5 GB each: as many jobs as cores and memory allow.
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  local by_memory=$((memory_gb * 2 / 3))
  ((by_memory < 1)) && by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}
