# The Vulkan backend: headers at build time, the loader at run time. SPIR-V is in the tree (shaders/spirv), so no shader
# compiler is needed; tools/shaders makes it anew.
set(LLMRT_VULKAN_INCLUDE "" CACHE PATH "Folder that holds vulkan/vulkan.h with KHR_cooperative_matrix (1.3.255 or newer)")
set(vulkan_include ${LLMRT_VULKAN_INCLUDE})
if(NOT vulkan_include)  # where tools/build unpacks them
  set(cache_dir $ENV{XDG_CACHE_HOME})
  if(NOT cache_dir)
    set(cache_dir $ENV{HOME}/.cache)
  endif()
  file(GLOB prefixes ${cache_dir}/llmrt/vulkan-headers-*/usr/include)
  find_path(vulkan_include vulkan/vulkan.h HINTS ${prefixes} NO_CACHE)
endif()
set(has_matrix "")
if(EXISTS ${vulkan_include}/vulkan/vulkan_core.h)
  file(STRINGS ${vulkan_include}/vulkan/vulkan_core.h has_matrix REGEX "define VK_KHR_cooperative_matrix 1")
endif()
if(NOT has_matrix)
  message(WARNING "Vulkan backend left out: headers with VK_KHR_cooperative_matrix expected, found "
                  "'${vulkan_include}'; tools/build fetches them, or give their folder as LLMRT_VULKAN_INCLUDE")
  return()
endif()

file(GLOB spirv_modules CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/shaders/spirv/*.spv)
set(spirv_source ${CMAKE_BINARY_DIR}/generated/spirv_modules.cpp)
add_custom_command(
  OUTPUT ${spirv_source}
  COMMAND ${CMAKE_COMMAND} -DSPIRV_DIR=${CMAKE_SOURCE_DIR}/shaders/spirv -DOUTPUT=${spirv_source}
          -P ${CMAKE_SOURCE_DIR}/cmake/embed_spirv.cmake
  DEPENDS ${spirv_modules} ${CMAKE_SOURCE_DIR}/cmake/embed_spirv.cmake
  COMMENT "Embedding SPIR-V")

llmrt_library(backends/vulkan DEPS core/base core/platform core/ops core/backend core/kv core/weights
              LINK Threads::Threads ${CMAKE_DL_LIBS})
target_sources(llmrt_backends_vulkan PRIVATE ${spirv_source})
# Names in anonymous namespaces that another file has, too; an array of megabytes.
set_source_files_properties(${CMAKE_SOURCE_DIR}/backends/vulkan/kernels/latent.cpp ${spirv_source}
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_include_directories(llmrt_backends_vulkan SYSTEM PRIVATE ${vulkan_include})
# Vulkan's structures start with their type and are zero otherwise.
target_compile_options(llmrt_backends_vulkan PRIVATE -Wno-missing-field-initializers)
