#include "core/ops/sealed_list.h"

#include <xxhash.h>

#include <bit>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ops/op_fields.h"

namespace llmrt {
namespace {

// What a key is the hash of.
struct KeyWords {
  std::vector<uint64_t> words;
  void word(uint64_t w) { words.push_back(w); }
  void in(const char*, TensorId id) { word(static_cast<uint32_t>(id)); }
  void out(const char*, TensorId id) { word(static_cast<uint32_t>(id) + (1ull << 32)); }
  void inout(const char*, TensorId id) { word(static_cast<uint32_t>(id) + (2ull << 32)); }
  void weight(const char*, int32_t id) { word(static_cast<uint32_t>(id) + (3ull << 32)); }
  void group(const char*, int32_t id) { word(static_cast<uint32_t>(id) + (4ull << 32)); }
  template <class T>
  void value(const char*, T number) {
    if constexpr (std::is_floating_point_v<T>)
      word(std::bit_cast<uint32_t>(static_cast<float>(number)));
    else
      word(number);
  }
};

uint64_t key_of(const OpList& list) {
  KeyWords key;
  key.word(list.num_tokens);
  key.word(list.num_sampled);
  key.word(list.batch_invariant);
  key.word(list.decode_only);
  key.word(list.has_runs);
  key.word(list.routed_per_row);
  for (const TensorDesc& t : list.tensors) {
    key.word(static_cast<uint64_t>(t.rows) | static_cast<uint64_t>(t.dtype) << 8 |
             static_cast<uint64_t>(t.storage) << 16 | static_cast<uint64_t>(t.columns) << 32);
  }
  for (const Op& op : list.ops) {
    key.word(op.index() + (5ull << 32));
    std::visit([&](const auto& concrete) { fields(concrete, key); }, op);
  }
  return XXH3_64bits(key.words.data(), key.words.size() * sizeof(uint64_t));
}

}  // namespace

SealedList::SealedList(OpList complete) : list(std::move(complete)), key(key_of(list)) {}

}  // namespace llmrt
