# Every third-party library, each linked statically so that the one binary runs on a bare machine.
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.83 REQUIRED COMPONENTS json)
find_package(Threads REQUIRED)
find_path(LLMRT_SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
find_path(LLMRT_CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(LLMRT_XXHASH_INCLUDE xxhash.h REQUIRED)

add_library(llmrt_fmt STATIC ${CMAKE_SOURCE_DIR}/cmake/fmt_static/fmt_static.cpp)
target_compile_options(llmrt_fmt PRIVATE -O2 -w)

# spdlog header-only over the external fmt: nothing to find at run time.
add_library(llmrt_spdlog INTERFACE)
target_include_directories(llmrt_spdlog SYSTEM INTERFACE ${LLMRT_SPDLOG_INCLUDE})
target_compile_definitions(llmrt_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(llmrt_spdlog INTERFACE llmrt_fmt Threads::Threads)

add_library(llmrt_cli11 INTERFACE)
target_include_directories(llmrt_cli11 SYSTEM INTERFACE ${LLMRT_CLI11_INCLUDE})

add_library(llmrt_xxhash INTERFACE)
target_include_directories(llmrt_xxhash SYSTEM INTERFACE ${LLMRT_XXHASH_INCLUDE})
target_compile_definitions(llmrt_xxhash INTERFACE XXH_INLINE_ALL)

foreach(entry pcre2:pcre2.h:libpcre2-8.a utf8proc:utf8proc.h:libutf8proc.a)
  string(REPLACE ":" ";" parts ${entry})
  list(GET parts 0 name)
  list(GET parts 1 header)
  list(GET parts 2 archive)
  find_path(LLMRT_${name}_INCLUDE ${header} REQUIRED)
  find_library(LLMRT_${name}_LIBRARY ${archive} REQUIRED)
  add_library(llmrt_${name} INTERFACE)
  target_include_directories(llmrt_${name} SYSTEM INTERFACE ${LLMRT_${name}_INCLUDE})
  target_link_libraries(llmrt_${name} INTERFACE ${LLMRT_${name}_LIBRARY})
endforeach()
target_compile_definitions(llmrt_pcre2 INTERFACE PCRE2_CODE_UNIT_WIDTH=8 PCRE2_STATIC)
target_compile_definitions(llmrt_utf8proc INTERFACE UTF8PROC_STATIC)

if(LLMRT_TESTS)
  enable_testing()
  find_package(Catch2 3 REQUIRED)
endif()
