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

# download_prefix <name> <what> <package>...: sets prefix to a folder with the packages and all that they need, the C library
# too (programs in it run through run_in_prefix); fails when neither suite has them.
download_prefix() {
  local name=$1 what=$2 suite
  shift 2
  for suite in forky sid; do
    prefix=$cache_dir/$name-$suite
    [[ -f $prefix/complete ]] && return 0
  done
  for suite in forky sid; do
    prefix=$cache_dir/$name-$suite
    say "downloading $what ($suite)"
    if (
      use_suite "$suite" && cd "$cache_dir/apt/$suite" && rm -f archives/*.deb &&
        apt-get -qq -y --download-only install "$@" >/dev/null 2>&1 &&
        rm -rf "$prefix" && unpack_debs "$prefix" archives/*.deb && touch "$prefix/complete"
    ); then
      return 0
    fi
    warn "no $what from $suite"
  done
  return 1
}

# Sets vulkan_tools to a prefix with glslang 16, spirv-val and a current validation layer.
find_vulkan_tools() {
  local prefix
  download_prefix vulkan-tools "glslang, spirv-val and validation layers" \
    glslang-tools spirv-tools vulkan-validationlayers libvulkan1 || return 1
  vulkan_tools=$prefix
}

# Sets vulkan_compilers to a prefix with Mesa's Vulkan drivers and mesa-drm-shim, which stands in for their hardware.
find_vulkan_compilers() {
  local prefix
  download_prefix vulkan-compilers "Mesa's Vulkan drivers" mesa-vulkan-drivers mesa-drm-shim libvulkan1 || return 1
  vulkan_compilers=$prefix
}

# run_in_prefix <prefix> <program> <argument>...: with the prefix's own loader and libraries. A program given by its path is
# none of the prefix's, and has this system's libraries where the prefix has not.
run_in_prefix() {
  local prefix=$1 program=$2
  shift 2
  local libraries=$prefix/usr/lib/x86_64-linux-gnu
  local search=$libraries
  if [[ $program == /* ]]; then
    search+=:/usr/lib/x86_64-linux-gnu
  else
    program=$prefix/usr/bin/$program
  fi
  "$libraries/ld-linux-x86-64.so.2" --library-path "$search" "$program" "$@"
}
