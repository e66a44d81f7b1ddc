# Writes the committed SPIR-V modules into one C++ file: cmake -DSPIRV_DIR=... -DOUTPUT=... -P embed_spirv.cmake
file(GLOB modules ${SPIRV_DIR}/*.spv)
list(SORT modules)
set(arrays "")
set(rows "")
set(index 0)
set(hashes "")
foreach(module ${modules})
  get_filename_component(name ${module} NAME)
  string(REGEX REPLACE "\\.spv$" "" name ${name})
  file(READ ${module} hex HEX)
  string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," words "${hex}")
  string(APPEND arrays "constexpr uint32_t kModule${index}[] = {${words}};\n")
  string(APPEND rows "    {\"${name}\", kModule${index}},\n")
  string(APPEND hashes "${name}")
  string(SHA256 hash "${hex}")
  string(APPEND hashes "${hash}")
  math(EXPR index "${index} + 1")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUTPUT} "// Generated from shaders/spirv by cmake/embed_spirv.cmake.
#include \"backends/vulkan/pipelines.h\"

namespace llmrt::vulkan {
namespace {
${arrays}
struct Row {
  std::string_view name;
  std::span<const uint32_t> words;
};
constexpr Row kModules[] = {
${rows}};
}  // namespace

std::span<const uint32_t> find_spirv(std::string_view name) {
  for (const Row& row : kModules)
    if (row.name == name) return row.words;
  return {};
}
uint64_t spirv_hash() { return 0x${hash}ull; }

}  // namespace llmrt::vulkan
")
