# Configuring and building a preset. Sourced after the other parts.

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
    configure_options+=(-DLLMRT_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc")
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
