# The CUDA backend: nvcc compiles the kernels, the C++ compiler everything else. cudart is linked statically and opens
# libcuda at run time; cuBLAS is opened at run time. Without nvcc the backend is left out.
#   LLMRT_CUDA_RACECHECK       ON: for compute-sanitizer's racecheck (backends/cuda/warpgroup.cuh); a little slower
#   LLMRT_CUDA_QUICK           ON: hardly optimised kernels in a third of the time, where nothing will run them
#   LLMRT_CUDA_ARCHITECTURES   as for -gencode, from 75 on: 90a (default), 89, 75-virtual, ...; each takes its time.
#                              tools/build takes those of the GPUs that are there.
set(LLMRT_CUDA_ARCHITECTURES 90a CACHE STRING "Targets of the CUDA kernels: N (machine code and PTX), Na or N-virtual (PTX)")
if(NOT CMAKE_CUDA_COMPILER)
  find_program(LLMRT_NVCC nvcc HINTS ${CUDAToolkit_ROOT} $ENV{CUDA_PATH} /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT LLMRT_NVCC)
    message(STATUS "CUDA backend left out: no nvcc (give CUDAToolkit_ROOT or CMAKE_CUDA_COMPILER)")
    return()
  endif()
  set(CMAKE_CUDA_COMPILER ${LLMRT_NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES ${LLMRT_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
foreach(kind STANDARD EXTENSION)  # CMake 3.25 does not know that nvcc speaks C++20
  if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20)
  endif()
endforeach()
find_package(CUDAToolkit REQUIRED)

llmrt_library(backends/cuda DEPS core/base core/platform core/ops core/backend core/kv core/weights core/sample
              LINK CUDA::cudart_static Threads::Threads ${CMAKE_DL_LIBS})
target_include_directories(llmrt_backends_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})

if(LLMRT_CUDA_ARCHITECTURES MATCHES "90a")
  target_compile_definitions(llmrt_backends_cuda PRIVATE LLMRT_CUDA_90A=1)
endif()

# Kernels apart: their compiler does not know the warnings of the other one.
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/backends/cuda/*.cu)
add_library(llmrt_backends_cuda_kernels OBJECT ${kernels})
target_link_libraries(llmrt_backends_cuda_kernels PRIVATE llmrt_core_base llmrt_core_ops llmrt_core_backend llmrt_core_kv
                      llmrt_core_weights llmrt_core_sample llmrt_core_platform)
target_include_directories(llmrt_backends_cuda_kernels PRIVATE ${CMAKE_BINARY_DIR}/include/backends_cuda)
# 177: functions that only Hopper's code calls, in the code for others.
target_compile_options(llmrt_backends_cuda_kernels PRIVATE --expt-relaxed-constexpr --extended-lambda
                       --diag-suppress=177
                       -Xcompiler=-Wall,-Wextra $<$<BOOL:${LLMRT_CUDA_VERBOSE}>:-Xptxas=-v>
                       $<$<BOOL:${LLMRT_CUDA_QUICK}>:-Xcicc=-O1>)
# fmt 9 leaves constexpr out under nvcc, but not consteval, which needs it.
target_compile_definitions(llmrt_backends_cuda_kernels PRIVATE FMT_USE_CONSTEXPR=1
                           $<$<BOOL:${LLMRT_CUDA_RACECHECK}>:LLMRT_RACECHECK=1>)
target_sources(llmrt_backends_cuda PRIVATE $<TARGET_OBJECTS:llmrt_backends_cuda_kernels>)
