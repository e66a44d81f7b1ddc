// Model files as bytes, changed in places and loaded.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/model/load_file.h"
#include "tests/weights/gguf_bytes.h"

namespace llmrt::test {

// The bytes must outlive the model.
inline Result<std::shared_ptr<const Model>> load(const std::string& bytes) {
  auto source = parse_weight_source(as_span(bytes));
  if (!source) return source.error();
  return load_from_source(*source, "test");
}

// The metadata pairs whose keys begin with `key`.
inline void remove_pair(GgufBytes& file, std::string_view key) {
  std::erase_if(file.pairs, [&](const auto& pair) { return pair.substr(8, key.size()) == key; });
}
template <typename Add>
void replace_pair(GgufBytes& file, std::string_view key, Add add) {
  remove_pair(file, key);
  add();
}

}  // namespace llmrt::test
