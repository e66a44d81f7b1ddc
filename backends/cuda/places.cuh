// A row of logits as it is drawn from: its places, in the order of tokens. Without a mask, or with one of bits, place i
// is token i, and the logit of a denied token reads as -inf; with a list place i is the list's i-th token, so that a
// pass takes as long as the list. Kernels walk places and turn one into its token where they need an id.
//
// Bits are a word for 32 logits, one word for eight threads side by side, which ask for it while their logits are under
// way. A row without a mask pays a test of a register for each load.
#pragma once

#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {

struct Places {
  enum Kind : uint32_t { kAll, kBits, kList };
  const float* logits;  // of all tokens
  uint32_t vocab_size;
  Kind kind = kAll;
  uint32_t num_words = 0;
  const uint32_t* words = nullptr;  // of the mask

  __device__ uint32_t count() const { return kind == kList ? num_words : vocab_size; }
  __device__ uint32_t token_at(uint32_t place) const { return kind == kList ? words[place] : place; }
  __device__ float logit_at(uint32_t place) const {
    const uint32_t token = token_at(place);
    const float logit = token < vocab_size ? logits[token] : -INFINITY;  // under way while the bit is read
    return kind == kBits && !(allowed_of(place / 4) >> place % 4 & 1) ? -INFINITY : logit;
  }

  // Quads: four neighbouring places.
  __device__ uint32_t num_quads() const { return (count() + 3) / 4; }
  // As they are, -inf behind the row's end; of a row without a list.
  __device__ float4 load_quad(uint32_t quad) const {
    if (vocab_size % 4 == 0) return reinterpret_cast<const float4*>(logits)[quad];
    const auto load = [&](uint32_t v) { return v < vocab_size ? logits[v] : -INFINITY; };
    return {load(4 * quad), load(4 * quad + 1), load(4 * quad + 2), load(4 * quad + 3)};
  }
  // Bit i: whether the quad's place i may be drawn; of a row with a mask of bits.
  __device__ uint32_t allowed_of(uint32_t quad) const {
    return quad / 8 < num_words ? words[quad / 8] >> quad % 8 * 4 : 0;
  }
};

// The places of the row that `record` samples; `logits` are those that it reads.
__device__ inline Places places_of(const uint32_t* inputs, const SampleRecord& record, const float* logits,
                                   uint32_t vocab_size) {
  Places places{logits, vocab_size};
  if (record.mask < 0 || record.flags & kSampleForced) return places;
  const MaskRecord mask = input_array<MaskRecord>(inputs, kSmpMasks)[record.mask];
  places.kind = mask.kind == MaskKind::kBits ? Places::kBits : Places::kList;
  places.num_words = mask.count;
  places.words = input_array<uint32_t>(inputs, kSmpMaskWords) + mask.first;
  return places;
}

// visit(logit, token) for all places of a row, by a block of kThreads.
template <uint32_t kThreads, class Visit>
__device__ void for_places(const Places& places, Visit visit) {
  if (places.kind == Places::kAll) {
#pragma unroll 4
    for (uint32_t v = threadIdx.x; v < places.vocab_size; v += kThreads) visit(places.logits[v], v);
  } else if (places.kind == Places::kBits) {
#pragma unroll 4
    for (uint32_t v = threadIdx.x; v < places.vocab_size; v += kThreads) {
      const float logit = places.logits[v];
      visit(places.allowed_of(v / 4) >> v % 4 & 1 ? logit : -INFINITY, v);
    }
  } else {
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < places.num_words; i += kThreads) {
      const uint32_t token = places.words[i];
      visit(token < places.vocab_size ? places.logits[token] : -INFINITY, token);
    }
  }
}

// What a block reads of a row: the quads of one of its parts.
struct RowPart {
  uint32_t begin, end;
  __device__ RowPart(const Places& places, uint32_t part, uint32_t num_parts)
      : begin(static_cast<uint32_t>(uint64_t{places.num_quads()} * part / num_parts)),
        end(static_cast<uint32_t>(uint64_t{places.num_quads()} * (part + 1) / num_parts)) {}
};

// visit(the four logits, quad, token_at) for this thread's quads of the part, in their order; -inf behind the row's
// end; token_at(place) is for places whose logit is a number. Four loads are under way at once, and the plain way
// visits quads of -inf behind the part's end. A list, which is short, is gathered one quad after the other: kernels
// keep the registers that they need without masks.
template <uint32_t kThreads, class Visit>
__device__ void for_quads(const Places& places, const RowPart& part, Visit visit) {
  constexpr uint32_t kLoads = 4;
  if (places.kind == Places::kList) {
#pragma unroll 1
    for (uint32_t quad = part.begin + threadIdx.x; quad < part.end; quad += kThreads) {
      const uint32_t first = 4 * quad, num_words = places.num_words;
      const auto load = [&](uint32_t place) { return place < num_words ? places.logit_at(place) : -INFINITY; };
      visit(float4{load(first), load(first + 1), load(first + 2), load(first + 3)}, quad,
            [&](uint32_t place) { return places.words[min(place, num_words - 1)]; });
    }
    return;
  }
  for (uint32_t first = part.begin + threadIdx.x; first < part.end; first += kLoads * kThreads) {
    float4 quads[kLoads];
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t quad = first + i * kThreads;
      quads[i] = quad < part.end ? places.load_quad(quad) : float4{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    }
    if (places.kind == Places::kBits) {
      uint32_t allowed[kLoads];
#pragma unroll
      for (uint32_t i = 0; i < kLoads; ++i) allowed[i] = places.allowed_of(first + i * kThreads);
#pragma unroll
      for (uint32_t i = 0; i < kLoads; ++i) {
        if (!(allowed[i] & 1)) quads[i].x = -INFINITY;
        if (!(allowed[i] & 2)) quads[i].y = -INFINITY;
        if (!(allowed[i] & 4)) quads[i].z = -INFINITY;
        if (!(allowed[i] & 8)) quads[i].w = -INFINITY;
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) visit(quads[i], first + i * kThreads, [](uint32_t place) { return place; });
  }
}

}  // namespace llmrt::cuda
