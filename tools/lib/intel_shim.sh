# Intel's stand-in for its hardware, libintel_noop_drm_shim, which no Debian package has: built once from the source of
# Debian 13's Mesa. Sourced after common.sh, packages.sh and python.sh.

intel_shim_packages=(build-essential ninja-build pkg-config flex bison xz-utils python3 python3-venv libdrm-dev
  libexpat1-dev zlib1g-dev)
intel_shim_python_packages=(meson mako pyyaml packaging)
intel_shim_suite=trixie  # Mesa 25.0.7, which newer drivers accept

# Sets intel_shim; fails, and says at what, when it cannot be built.
find_intel_shim() {
  intel_shim=$cache_dir/intel-shim/libintel_noop_drm_shim.so
  [[ -f $intel_shim ]] && return 0
  say "building Intel's stand-in from Mesa's source (47 MB; once, some 3 minutes)"
  local dir=$cache_dir/intel-shim.part log=$cache_dir/intel-shim.log
  rm -rf "$dir"
  mkdir -p "$dir"
  # Subshells, because install_packages ends the process when it fails, and use_suite leaves apt changed.
  if ! (install_packages "${intel_shim_packages[@]}"); then
    warn "no stand-in for Intel: packages: ${intel_shim_packages[*]}"
  elif ! make_venv "$cache_dir/intel-shim-venv" "${intel_shim_python_packages[@]}" >"$log" 2>&1; then
    warn "no stand-in for Intel: Python packages ${intel_shim_python_packages[*]}: $(tail -n 1 "$log")"
  elif ! (use_suite "$intel_shim_suite" deb-src && cd "$dir" && apt-get -q source --download-only mesa) \
    >"$log" 2>&1; then
    warn "no stand-in for Intel: the source of $intel_shim_suite's mesa: $(tail -n 1 "$log")"
  elif ! build_intel_shim "$dir" >"$log" 2>&1; then
    warn "no stand-in for Intel: its build: $(tail -n 1 "$log") (all of it: $log)"
  else
    mkdir -p "${intel_shim%/*}"
    mv "$dir/build/src/intel/tools/${intel_shim##*/}" "$intel_shim"
  fi
  rm -rf "$dir"
  [[ -f $intel_shim ]]
}

# In a folder with Mesa's source archive: nothing is configured but the tools, and of these one target is built.
build_intel_shim() {
  local dir=$1
  mkdir "$dir/source" && tar -xf "$dir"/mesa_*.orig.tar.xz -C "$dir/source" --strip-components 1 &&
    PATH="$cache_dir/intel-shim-venv/bin:$PATH" meson setup "$dir/build" "$dir/source" --buildtype plain \
      -Dtools=drm-shim,intel -Dgallium-drivers= -Dvulkan-drivers= -Dplatforms= -Dglx=disabled -Degl=disabled \
      -Dgbm=disabled -Dopengl=false -Dgles1=disabled -Dgles2=disabled -Dllvm=disabled -Dzstd=disabled \
      -Dvalgrind=disabled -Dlibunwind=disabled -Dlmsensors=disabled -Dbuild-tests=false &&
    PATH="$cache_dir/intel-shim-venv/bin:$PATH" ninja -C "$dir/build" -j "$(build_jobs)" \
      src/intel/tools/libintel_noop_drm_shim.so
}
