// Names that somebody may have meant: by case, parts and typos; nothing where all are far.
#include <catch2/catch_test_macros.hpp>

#include "core/router/near_names.h"

namespace llmrt {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("near names come by beginning, part and typos, the nearest first") {
  const Names names = {"qwen3-8b-q4", "llama-3.1-8b", "smollm2-135m", "qwen3-0.6b"};
  CHECK(near_names("QWEN3", names, 3) == Names{"qwen3-8b-q4", "qwen3-0.6b"});
  CHECK(near_names("smolm2-135m", names, 3) == Names{"smollm2-135m"});
  CHECK(near_names("meta/llama-3.1-8b", names, 3) == Names{"llama-3.1-8b"});
  CHECK(near_names("gpt-4o", names, 3).empty());
  CHECK(near_names("8b", names, 1).size() == 1);
  CHECK(near_names("", names, 3).empty());
  CHECK(near_names(std::string(1 << 20, 'x'), names, 3).empty());
}

}  // namespace
}  // namespace llmrt
