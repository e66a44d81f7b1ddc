// What all layers of a decoder share, and the layers themselves, read from a file's metadata or from a named shape.
// Plain data; checked once by load_model (model.h), trusted afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/layer.h"

namespace llmrt {

struct ModelConfig {
  std::string architecture;  // a name of architectures.cpp
  std::string name;
  uint32_t width = 0;  // D
  uint32_t vocab_size = 0;
  uint32_t context_max = 0;  // positions that the model was trained for
  float rms_eps = 1e-5f;
  float embedding_scale = 1;  // factor on rows of the embedding, not on those of a head that is tied to it
  float residual_scale = 1;   // factor on what a part adds to the stream
  float logit_scale = 1;      // factor on logits
  float logit_soft_cap = 0;   // of logits, behind logit_scale; 0 = none
  // Tables of radians per position, scaling applied; a layer names one (RopeSpec::freqs_idx).
  std::vector<std::vector<float>> rope_freqs;
  std::vector<LayerSpec> layers;
  // Layers behind these, which draft tokens beyond the next one (MTP): Model::draft_head.
  uint32_t num_draft_layers = 0;

  uint32_t num_layers() const { return static_cast<uint32_t>(layers.size()); }
};

}  // namespace llmrt
