# Headers that are parsed once for all that link llmrt_options with the same kind of code: the standard library's and
# fmt's are two thirds of a small file's compile time; Catch2's, Boost's and CLI11's most of that of a file with them.
#
# llmrt_precompiled(<target> [<header>...])
# The common headers and these. Targets with the same ones share what was made of them.
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
  # Libraries are -fPIC, programs -fPIE: a header precompiled for one does not serve the other.
  set(kind library)
  if(type STREQUAL "EXECUTABLE")
    set(kind program)
  endif()
  string(MAKE_C_IDENTIFIER "${ARGN}" headers)
  set(owner llmrt_precompiled_${kind}${headers})
  if(NOT TARGET ${owner})
    set(source ${CMAKE_BINARY_DIR}/generated/${owner}.cpp)
    if(kind STREQUAL "program")
      file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
      add_executable(${owner} ${source})
    else()
      file(CONFIGURE OUTPUT ${source} CONTENT "namespace {}\n")
      add_library(${owner} OBJECT ${source})
    endif()
    target_link_libraries(${owner} PRIVATE llmrt_options llmrt_fmt Threads::Threads)
    if("${ARGN}" MATCHES "boost/")
      target_link_libraries(${owner} PRIVATE Boost::json)
    endif()
    if("${ARGN}" MATCHES "CLI/")
      target_link_libraries(${owner} PRIVATE llmrt_cli11)
    endif()
    if("${ARGN}" MATCHES "catch2/")
      target_link_libraries(${owner} PRIVATE Catch2::Catch2)
    endif()
    # At the level of what shares it: GCC 12 fails on headers of another one.
    if("${ARGN}" MATCHES "CLI/" OR (kind STREQUAL "program" AND "${ARGN}" MATCHES "catch2/"))
      target_compile_options(${owner} PRIVATE ${llmrt_light_options})
    endif()
    target_precompile_headers(${owner} PRIVATE ${llmrt_common_headers} ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
