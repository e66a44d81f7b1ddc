// What a quantised KV cache costs, apart from what quantised weights cost: two models (float and quantised weights)
// with each of several KV dtypes over the same text, every cell compared with float weights and the first dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/caps.h"
#include "core/base/status.h"
#include "core/kv/kv_format.h"
#include "core/model/model.h"

namespace llmrt::bench {

struct KvQualityPlan {
  std::string device;
  std::vector<std::pair<std::string, std::shared_ptr<const Model>>> weights;  // with names; the first is the reference
  std::vector<KvDType> kv_dtypes;                                             // the first is the reference
  std::vector<uint32_t> contexts;                                             // ascending
  std::vector<int32_t> tokens;  // more than the longest context: the last one's next token is scored too
  uint32_t scored_max = 256;    // positions of a context whose logits count: its last ones
  uint32_t positions = 16;      // most attended, of each query and head
};

struct KvCell {
  double nll = 0;               // mean of -log p(next token), nats
  double kl = 0;                // mean of KL(reference || cell), nats
  double same_best = 0;         // share of scored positions whose best token is the reference's
  std::vector<double> overlap;  // by layer: mean share of the reference's most-attended positions
  double seconds = 0;           // of the whole cell

  double mean_overlap() const;
  size_t lowest_layer() const;  // index into overlap
};

struct KvContext {
  uint32_t num_tokens = 0, num_scored = 0;
  std::vector<std::vector<KvCell>> cells;  // [weights][kv dtype]
};

struct KvQuality {
  Caps caps;
  std::vector<KvContext> contexts;
  std::vector<std::string> left_out;  // contexts that the device has no memory for, with the reason
};

// Says on standard error how far it is.
Result<KvQuality> measure_kv_quality(const KvQualityPlan& plan);

}  // namespace llmrt::bench
