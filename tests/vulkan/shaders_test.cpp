// The structs of kernels/<shader>.h against the shaders: names and order of the specialization constants against the
// source, how many there are and the size of the push constants against the SPIR-V that runs.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/pipelines.h"

namespace llmrt::vulkan {
namespace {

std::string read_source(const std::string& file) {
  std::ifstream stream(fmt::format("{}/{}", LLMRT_SHADERS_DIR, file));
  REQUIRE(stream);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// kTileRows: tile_rows; kKvDType: kv_dtype.
std::string snake_case(std::string name) {
  if (const size_t at = name.find("DType"); at != std::string::npos) name[at + 1] = 't';
  std::string out;
  for (size_t i = 1; i < name.size(); ++i) {
    if (i > 1 && std::isupper(name[i])) out += '_';
    out += static_cast<char>(std::tolower(name[i]));
  }
  return out;
}

// The shader's own constants by id, its includes' among them.
void collect_constants(const std::string& file, std::map<uint32_t, std::string>* constants) {
  const std::string text = read_source(file);
  const std::regex constant(R"(constant_id = (\d+)\) const \w+ (k\w+))"), include(R"(#include "([^"]+[.]glsl)\")");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), constant); it != std::sregex_iterator(); ++it)
    if (const uint32_t id = static_cast<uint32_t>(std::stoul((*it)[1])); id >= 10)
      (*constants)[id] = snake_case((*it)[2]);
  for (auto it = std::sregex_iterator(text.begin(), text.end(), include); it != std::sregex_iterator(); ++it)
    collect_constants((*it)[1], constants);
}

// What a module says of its constants and its block of push constants.
struct Module {
  std::set<uint32_t> constant_ids;
  uint32_t push_bytes = 0;
};
Module inspect_module(std::span<const uint32_t> words) {
  enum : uint32_t {
    kTypeInt = 21,
    kTypeFloat = 22,
    kTypeVector = 23,
    kTypeStruct = 30,
    kTypePointer = 32,
    kVariable = 59
  };
  enum : uint32_t { kDecorate = 71, kMemberDecorate = 72, kSpecId = 1, kOffset = 35, kPushConstant = 9 };
  Module module;
  std::map<uint32_t, uint32_t> bytes, pointee;               // by type
  std::map<uint32_t, std::vector<uint32_t>> members;         // by struct
  std::map<uint32_t, std::map<uint32_t, uint32_t>> offsets;  // by struct and member
  for (size_t i = 5; i < words.size(); i += words[i] >> 16) {
    const uint32_t* w = &words[i];
    const uint32_t count = w[0] >> 16, op = w[0] & 0xffff;
    if (op == kTypeInt || op == kTypeFloat) bytes[w[1]] = w[2] / 8;
    if (op == kTypeVector) bytes[w[1]] = bytes[w[2]] * w[3];
    if (op == kTypePointer) bytes[w[1]] = 8, pointee[w[1]] = w[3];
    if (op == kTypeStruct) members[w[1]].assign(w + 2, w + count);
    if (op == kDecorate && w[2] == kSpecId && w[3] >= 10) module.constant_ids.insert(w[3]);
    if (op == kMemberDecorate && w[3] == kOffset) offsets[w[1]][w[2]] = w[4];
    if (op == kVariable && w[3] == kPushConstant) {
      const uint32_t block = pointee[w[1]], last = static_cast<uint32_t>(members[block].size()) - 1;
      // A pointer that is declared before what it points to has 8 bytes as well.
      const auto size = bytes.find(members[block][last]);
      module.push_bytes = offsets[block][last] + (size == bytes.end() ? 8 : size->second);
    }
  }
  return module;
}

TEST_CASE("the constants and push constants of each kernel are those of its shader") {
  for (const Shader& shader : all_shaders()) {
    const std::string name = shader.name, source = name.substr(0, name.find('.'));
    INFO(name);
    std::map<uint32_t, std::string> constants;
    collect_constants(source + ".comp", &constants);
    CHECK(constants.size() == shader.constants.size());
    for (const auto& [id, expected] : constants) {
      REQUIRE(id - 10 < shader.constants.size());
      CHECK(expected == shader.constants[id - 10]);
    }
    for (const char* tier : {"", ".subgroup", ".scalar"}) {
      const std::span<const uint32_t> words = find_spirv(name + tier);
      if (words.empty()) continue;
      const Module module = inspect_module(words);
      CHECK(module.push_bytes == shader.push_bytes);
      if (!module.constant_ids.empty()) CHECK(*module.constant_ids.rbegin() - 10 < shader.constants.size());
    }
    CHECK((!find_spirv(name).empty() ||
           (!find_spirv(name + ".subgroup").empty() && !find_spirv(name + ".scalar").empty())));
  }
}

// Returns of a module beyond one for each function.
size_t count_early_returns(std::span<const uint32_t> words) {
  enum : uint32_t { kFunction = 54, kReturn = 253, kReturnValue = 254 };
  size_t functions = 0, returns = 0;
  for (size_t i = 5; i < words.size(); i += words[i] >> 16) {
    const uint32_t op = words[i] & 0xffff;
    functions += op == kFunction;
    returns += op == kReturn || op == kReturnValue;
  }
  return returns - functions;
}

// With 31 early returns within reach, none of which f16 comes by, NVIDIA's compiler kept the sums of matmul_wide in
// memory: 31 TFLOP/s on an H200 instead of 350, which it had with 23.
TEST_CASE("functions that matmul_wide calls rarely return early") {
  const std::span<const uint32_t> words = find_spirv("matmul_wide");
  REQUIRE(!words.empty());
  CHECK(count_early_returns(words) <= 8);
}

TEST_CASE("every module of shaders/variants is in the table of shaders") {
  std::istringstream lines(read_source("variants"));
  size_t num_modules = 0;
  for (std::string line; std::getline(lines, line);) {
    std::string name = line.substr(0, line.find(' '));
    if (name.empty() || name[0] == '#') continue;
    for (const std::string tier : {".subgroup", ".scalar"})
      if (name.ends_with(tier)) name.resize(name.size() - tier.size());
    CAPTURE(name);
    CHECK(std::ranges::any_of(all_shaders(), [&](const Shader& shader) { return name == shader.name; }));
    ++num_modules;
  }
  CHECK(num_modules > 30);
}

}  // namespace
}  // namespace llmrt::vulkan
