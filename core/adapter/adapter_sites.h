// Where the product of a module goes: the rows of weight groups that hold the rows of its matrix, in whatever order the
// model has them. GGUF files and Hugging Face folders order the rows of some matrices differently, for models and for
// adapters alike, and an adapter of one kind may be used with a model of the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/keyed_hash.h"
#include "core/base/status.h"
#include "core/model/model.h"

namespace llmrt {

// How the files of an adapter order rows.
enum class AdapterRows : uint8_t { kFolder, kGguf };

// Element i of the part is element map[i] of the module; an empty map: the same order.
struct AdapterSite {
  WeightGroupId group = -1;
  uint32_t part = 0;  // segment of the group
  std::vector<uint32_t> b_rows, a_columns;
  uint64_t row_first = 0, row_step = 1;  // of an expert: its row i is row_first + i * row_step of the module
};

struct ModuleSites {
  uint64_t rows = 0, columns = 0;  // of the module's matrix
  std::vector<AdapterSite> sites;
  // Only of a stack: the experts whose matrices these are, and parts of an expert's group.
  uint32_t expert_first = 0, num_experts = 0, num_parts = 0;
};

class AdapterSites {
 public:
  // `model` outlives this.
  AdapterSites(const Model& model, AdapterRows order);

  // The sites of a matrix by GGUF's name ("blk.0.attn_q.weight"). `shown` names the tensor in messages. Errors:
  // unsupported; invalid_argument for one that the model does not have.
  Result<ModuleSites> find(const std::string& canonical, std::string_view shown) const;

 private:
  struct Place {
    WeightGroupId group;
    uint32_t part;
  };
  using Places = std::vector<Place>;

  const Places* places_of(const std::string& name) const;
  const WeightGroup& group(WeightGroupId id) const { return model_.weights.groups[static_cast<size_t>(id)]; }
  ModuleSites in_order(const Places& places) const;
  Result<ModuleSites> find_experts(uint32_t layer, std::string_view name, std::string_view shown) const;
  Result<ModuleSites> find_missing(const std::string& canonical, std::string_view shown) const;
  Result<ModuleSites> find_in_layer(const std::string& canonical, uint32_t layer, ModuleSites found,
                                    std::string_view shown) const;
  ModuleSites split_gated_queries(uint32_t layer, ModuleSites queries) const;
  ModuleSites split_delta_rows(uint32_t layer, const Place& qkv, const Place& z) const;
  Status turn_heads(uint32_t layer, uint32_t num_heads, ModuleSites* found, std::string_view shown) const;
  void order_value_heads(const RecurrentSpec& spec, std::string_view name, ModuleSites* found) const;

  const Model& model_;
  RopePairing pairing_ = RopePairing::kHalves;         // of the rows of q and k in the adapter
  KeyHeadOrder value_order_ = KeyHeadOrder::kDivided;  // of the value heads of a delta rule in the adapter
  KeyedMap<Places> places_;                            // by tensor name
};

}  // namespace llmrt
