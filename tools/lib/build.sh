# Configuring and building a preset. Sourced after the other parts.

# Sets cuda_architectures: $LLMRT_CUDA_ARCHITECTURES, or those of the GPUs that are here; where there are none, Hopper's
# and Turing's as PTX, which drivers translate for it and every later GPU.
find_cuda_architectures() {
  cuda_architectures=${LLMRT_CUDA_ARCHITECTURES:-}
  [[ -z $cuda_architectures ]] || return 0
  local capability number newest known targets=()
  known=$("$nvcc" --list-gpu-arch | sed -n 's/^compute_//p' | awk '$1 >= 75' | sort -n)
  while read -r capability; do
    number=${capability/./}
    [[ $number =~ ^[0-9]+$ ]] || continue
    newest=$(awk -v most="$number" '$1 <= most { newest = $1 } END { print newest }' <<<"$known")
    if [[ $number == 90 ]]; then
      targets+=(90a)
    elif [[ $number == "$newest" ]]; then
      targets+=("$number")
    elif [[ -n $newest ]]; then
      targets+=("$newest-virtual")
    else
      warn "there is no code for compute capability $capability: that GPU is served by Vulkan"
    fi
  done < <(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u)
  cuda_architectures=$(IFS=';' && echo "${targets[*]:-90a;75-virtual}")
}

# prepare_build [cuda=yes|no]: installs what a build needs; sets configure_options.
prepare_build() {
  local with_cuda=${1:-yes}
  install_packages "${build_packages[@]}" "${backports_packages[@]}"
  configure_options=()
  if find_vulkan_headers; then
    configure_options+=("-DLLMRT_VULKAN_INCLUDE=$vulkan_include")
  else
    die "no Vulkan headers: expected 1.3.275 or later from Debian testing, unstable or stable, found none"
  fi
  if [[ $with_cuda == yes ]] && find_nvcc; then
    find_cuda_architectures
    configure_options+=(-DLLMRT_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc" "-DLLMRT_CUDA_ARCHITECTURES=$cuda_architectures"
      -DLLMRT_CUDA_QUICK=OFF)
  else
    [[ $with_cuda == yes ]] && warn "no nvcc, neither here nor from PyPI: building without the CUDA backend"
    configure_options+=(-DLLMRT_CUDA=OFF)
  fi
}

# build_preset <preset> [<cmake option>...] [-- <target>...]: ninja shows its progress.
build_preset() {
  local preset=$1 options=() targets=()
  shift
  while (($#)) && [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  (($#)) && targets=("${@:2}")
  (
    cd "$root_dir"
    cmake --preset "$preset" "${configure_options[@]}" "${options[@]}" >"$cache_dir/configure.log" 2>&1 ||
      { cat "$cache_dir/configure.log" >&2 && die "cmake could not configure preset $preset"; }
    ninja -C "build/$preset" -j "$(build_jobs)" "${targets[@]}"
  )
}
