// What the readers of a Hugging Face folder's tokenizer.json share: looking into a JSON tree, and their errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/weights/json_tree.h"
#include "core/weights/metadata.h"

namespace llmrt {

template <typename... Args>
Error refused_tokenizer(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, "unsupported tokenizer: tokenizer.json: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Error bad_tokenizer(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kCorruptFile, "bad tokenizer.json: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}

// The text of a member; empty where it is none.
inline std::string_view text_of(const JsonTree* object, std::string_view name) {
  const JsonTree* found = object == nullptr ? nullptr : object->find(name);
  return found == nullptr || found->string() == nullptr ? std::string_view() : std::string_view(*found->string());
}
// Whether a member is `wanted`; an absent one is `otherwise`.
inline bool is_flag(const JsonTree* object, std::string_view name, bool wanted, bool otherwise) {
  const JsonTree* found = object == nullptr ? nullptr : object->find(name);
  if (found == nullptr) return wanted == otherwise;
  return found->boolean() != nullptr && *found->boolean() == wanted;
}
inline std::string shown(const JsonTree* found) {
  return found == nullptr ? "nothing" : found->describe();
}

// The steps of a normalizer, pre_tokenizer, post_processor or decoder: those of a Sequence under `list`, else itself.
inline std::vector<const JsonTree*> steps_of(const JsonTree* part, std::string_view list) {
  std::vector<const JsonTree*> steps;
  if (part == nullptr) return steps;
  if (text_of(part, "type") != "Sequence") return {part};
  const JsonTree* inner = part->find(list);
  if (inner == nullptr || inner->items() == nullptr) return {part};  // then its type is told
  for (const JsonTree& step : *inner->items()) steps.push_back(&step);
  return steps;
}
inline std::string types_of(const std::vector<const JsonTree*>& steps) {
  constexpr size_t kShown = 16;
  std::string types;
  for (size_t i = 0; i < std::min(steps.size(), kShown); ++i)
    types += fmt::format("{}{}", types.empty() ? "" : ", ", printable(text_of(steps[i], "type")));
  return types.empty() ? "none" : types;
}

}  // namespace llmrt
