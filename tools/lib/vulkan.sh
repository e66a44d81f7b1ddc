# Newer Vulkan headers and tools than Debian 12 has, unpacked under the cache folder. Sourced after packages.sh.
#
# Testing and unstable move, so they are best effort: a suite that is not served, or lacks a package, is skipped for the
# next one.

# Sets vulkan_include to a folder with headers that know cooperative matrix 2 and bfloat16 (1.4.336 or later), or with
# the newest that could be had; fails when none could.
find_vulkan_headers() {
  local prefix=$cache_dir/vulkan-headers suite
  for suite in forky sid trixie; do
    vulkan_include=$prefix-$suite/usr/include
    [[ -f $vulkan_include/vulkan/vulkan_core.h && -d $vulkan_include/vk_video ]] && return 0
  done
  for suite in forky sid trixie; do
    say "downloading Vulkan headers ($suite)"
    if (
      use_suite "$suite" && cd "$cache_dir/apt/$suite/archives" && rm -f libvulkan-dev_*.deb &&
        apt-get -qq download libvulkan-dev >/dev/null 2>&1 &&
        unpack_debs "$prefix-$suite.part" libvulkan-dev_*.deb
    ); then
      rm -rf "$prefix-$suite"
      mv "$prefix-$suite.part" "$prefix-$suite"
      vulkan_include=$prefix-$suite/usr/include
      return 0
    fi
    warn "no Vulkan headers from $suite"
  done
  return 1
}

# Sets vulkan_tools to a prefix with glslang 16, spirv-val and a current validation layer, together with the C library
# that they need (programs in it run through run_in_prefix); fails when neither suite has them.
find_vulkan_tools() {
  local suite packages=(glslang-tools spirv-tools vulkan-validationlayers libvulkan1)
  for suite in forky sid; do
    vulkan_tools=$cache_dir/vulkan-tools-$suite
    [[ -f $vulkan_tools/complete ]] && return 0
  done
  for suite in forky sid; do
    vulkan_tools=$cache_dir/vulkan-tools-$suite
    say "downloading glslang, spirv-val and validation layers ($suite)"
    if (
      use_suite "$suite" &&
        apt-get -qq -y --download-only install "${packages[@]}" >/dev/null 2>&1 &&
        rm -rf "$vulkan_tools" && unpack_debs "$vulkan_tools" "$cache_dir/apt/$suite/archives"/*.deb &&
        touch "$vulkan_tools/complete"
    ); then
      return 0
    fi
    warn "no Vulkan tools from $suite"
  done
  return 1
}

# Sets vulkan_compilers to a prefix with Mesa's Vulkan drivers and mesa-drm-shim, which stands in for their hardware;
# fails when neither suite has them.
find_vulkan_compilers() {
  local suite packages=(mesa-vulkan-drivers mesa-drm-shim libvulkan1)
  for suite in forky sid; do
    vulkan_compilers=$cache_dir/vulkan-compilers-$suite
    [[ -f $vulkan_compilers/complete ]] && return 0
  done
  for suite in forky sid; do
    vulkan_compilers=$cache_dir/vulkan-compilers-$suite
    say "downloading Mesa's Vulkan drivers ($suite)"
    if (
      use_suite "$suite" && cd "$cache_dir/apt/$suite" && rm -f archives/*.deb &&
        apt-get -qq -y --download-only install "${packages[@]}" >/dev/null 2>&1 &&
        rm -rf "$vulkan_compilers" && unpack_debs "$vulkan_compilers" archives/*.deb &&
        touch "$vulkan_compilers/complete"
    ); then
      return 0
    fi
    warn "no Vulkan drivers from $suite"
  done
  return 1
}

# run_in_prefix <prefix> <program> <argument>...: with the prefix's own loader and libraries.
run_in_prefix() {
  local prefix=$1 program=$2
  shift 2
  local libraries=$prefix/usr/lib/x86_64-linux-gnu
  "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$prefix/usr/bin/$program" "$@"
}
