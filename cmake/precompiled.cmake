# The standard library's and fmt's headers, parsed once for all that link llmrt_options with the same kind of code: two
# thirds of a small file's compile time. Boost's and CLI11's take most of the time of a file that includes them.
#
# llmrt_precompiled(<target> [<header>...])
# With headers of its own the target precompiles those and the common ones for itself.
option(LLMRT_PRECOMPILED "Precompile common headers (makes a first build faster)" ON)

set(llmrt_common_headers
    <algorithm> <array> <bit> <chrono> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex> <numeric>
    <optional> <random> <set> <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
    <fmt/format.h>)

if(LLMRT_PRECOMPILED)
  # So that ccache can tell what such a header was made of (its manual, "Precompiled headers").
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()

function(llmrt_precompiled target)
  get_target_property(type ${target} TYPE)
  if(NOT LLMRT_PRECOMPILED OR type STREQUAL "INTERFACE_LIBRARY")
    return()
  endif()
  if(ARGN)
    target_precompile_headers(${target} PRIVATE ${llmrt_common_headers} ${ARGN})
    return()
  endif()
  # Libraries are -fPIC, programs -fPIE: a header precompiled for one does not serve the other.
  set(kind library)
  if(type STREQUAL "EXECUTABLE")
    set(kind program)
  endif()
  set(owner llmrt_precompiled_${kind})
  if(NOT TARGET ${owner})
    set(source ${CMAKE_BINARY_DIR}/generated/precompiled_${kind}.cpp)
    if(kind STREQUAL "program")
      file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
      add_executable(${owner} ${source})
    else()
      file(CONFIGURE OUTPUT ${source} CONTENT "namespace {}\n")
      add_library(${owner} OBJECT ${source})
    endif()
    target_link_libraries(${owner} PRIVATE llmrt_options llmrt_fmt Threads::Threads)
    target_precompile_headers(${owner} PRIVATE ${llmrt_common_headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
