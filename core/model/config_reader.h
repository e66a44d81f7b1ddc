// Metadata keys of one architecture, read one after another; the first error is kept. What read_config.cpp,
// read_layers.cpp and read_recurrent.cpp share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/model/architectures.h"
#include "core/model/model_config.h"
#include "core/weights/metadata.h"

namespace llmrt {

inline constexpr uint32_t kContextMax = 1u << 30;

class ConfigReader {
 public:
  ConfigReader(const Metadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix)) {}

  uint32_t integer(const char* name, uint64_t min, uint64_t max, std::optional<uint64_t> fallback = {}) {
    auto value = metadata_.integer(prefix_ + name, min, max, fallback);
    return static_cast<uint32_t>(keep(value, min));
  }
  // A number for each layer: the file has one for all, or an array.
  std::vector<uint32_t> integers(const char* name, uint64_t min, uint64_t max, uint32_t num_layers) {
    const MetadataValue* value = metadata_.find(prefix_ + name);
    if (value == nullptr || !value->is_array) return std::vector<uint32_t>(num_layers, integer(name, min, max));
    expect_one_a_layer(name, *value, num_layers);
    const auto array = metadata_.integers(prefix_ + name, static_cast<int64_t>(min), static_cast<int64_t>(max));
    if (!array && status_) status_ = array.error();
    if (!status_) return std::vector<uint32_t>(num_layers, static_cast<uint32_t>(min));
    return {array->begin(), array->begin() + num_layers};
  }
  std::vector<bool> booleans(const char* name, uint32_t num_layers) {
    const auto array = metadata_.booleans(prefix_ + name);
    if (!array && status_) status_ = array.error();
    if (array) expect_one_a_layer(name, *metadata_.find(prefix_ + name), num_layers);
    return status_ ? std::vector<bool>(array->begin(), array->begin() + num_layers) : std::vector<bool>(num_layers);
  }
  const MetadataValue* find(const std::string& name) const { return metadata_.find(prefix_ + name); }
  const Metadata& metadata() const { return metadata_; }
  float number(const char* name, double min, double max, std::optional<double> fallback = {}) {
    auto value = metadata_.number(prefix_ + name, min, max, fallback);
    return static_cast<float>(keep(value, min));
  }
  void expect(bool condition, ErrorCode code, const std::string& message) {
    if (!condition && status_) status_ = Error{code, message};
  }
  // Arrays may have elements for so many layers more.
  void set_draft_layers(uint32_t count) { num_draft_layers_ = count; }
  const Status& status() const { return status_; }
  const std::string& prefix() const { return prefix_; }

 private:
  void expect_one_a_layer(const char* name, const MetadataValue& value, uint32_t num_layers) {
    expect(value.count == num_layers || value.count == uint64_t{num_layers} + num_draft_layers_,
           ErrorCode::kCorruptFile,
           fmt::format("bad metadata: {}{}: expected {} elements, one a layer, found {}", prefix_, name, num_layers,
                       value.count));
  }
  template <typename T, typename U>
  T keep(const Result<T>& value, U otherwise) {
    if (value) return *value;
    if (status_) status_ = value.error();
    return static_cast<T>(otherwise);
  }

  const Metadata& metadata_;
  std::string prefix_;
  uint32_t num_draft_layers_ = 0;
  Status status_;
};

// Which layers are recurrent; `kv_heads` as the file has them, by layer.
std::vector<bool> read_recurrent_layers(ConfigReader& reader, const Architecture& architecture,
                                        const std::vector<uint32_t>& kv_heads);
// Turns the layers that have no KV heads into the recurrent ones of the architecture.
void read_recurrent(ConfigReader& reader, const Architecture& architecture, ModelConfig* config);
// Sizes of layers of latent attention, in an architecture that has it in all layers.
void read_latent(ConfigReader& reader, ModelConfig* config);
// Fills config->layers with all but the RoPE frequencies; the rest of config is read.
void read_layers(ConfigReader& reader, const Architecture& architecture, ModelConfig* config);

}  // namespace llmrt
