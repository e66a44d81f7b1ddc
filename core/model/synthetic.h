// Models of a known shape with random weights (core/weights/random_weights.h): "synthetic:<shape>:<encoding>". Token
// ids only; norms are near 1 and weights are scaled by 1 / sqrt(columns), so activations stay in the range of real
// models. "SHAPE@4" is a shape's first four layers alone; "SHAPE@4+" has all of them, and those behind the fourth add
// nothing: it says what the first says, as slowly as the whole does, which the first therefore drafts for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/model/model.h"
#include "core/weights/gguf_writer.h"

namespace llmrt {

inline constexpr std::string_view kSyntheticPrefix = "synthetic:";

// `path` with the prefix. An encoding names the mix that llama.cpp's quantizer makes of it: q4_k and q5_k keep some v
// and down matrices in q6_k; block encodings below q8_0 have their head (or tied embedding) in q6_k, mxfp4 in q8_0;
// where a row is no multiple of 256, q4_k, q5_k, q6_k become q5_0, q5_1, q8_0. fp8 is what checkpoints of fp8 have:
// head and embedding stay in bf16.
Result<std::shared_ptr<const Model>> make_synthetic(const std::string& path);

// Writes the same model (not fp8, which GGUF does not have) as a GGUF v3 file, with a placeholder byte-level vocabulary
// as other engines ask for one.
Status write_synthetic_gguf(const std::string& shape, const std::string& encoding, const std::string& file,
                            const WriteProgress& progress = {});

}  // namespace llmrt
