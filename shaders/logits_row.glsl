// Rows of logits as the sampling kernels read them: as keys, unsigned words that order as the floats do, so that ranks
// and ties are exact also where a device flushes subnormals. A kernel sets the row's variables, the same ones in every
// invocation of its workgroup. A pass over the row takes quads (4 places) round robin, kLoads of them in flight; the loops over
// what was loaded are not unrolled, or code would grow by that factor and drivers take long to compile it.
//
// A row has places, in the order of tokens. Without a mask, or with one of bits, place i is token i, and a token that is
// denied reads as -inf; with a list place i is the list's i-th token, so that a pass takes as long as the list.
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Words logits, processed;
  Words kept;          // [R] FilterResult
  Words inputs, rows;  // inputs: of the sample list
  Words candidates;    // [R, kListMax] keys, then as many ids
  Words counts, results;
  Words arrivals;  // [R] slices of a row that are done; 0 before and after
  uint vocab_size, sample_rows_max;
};

// Filter leaves in `candidates` all kept tokens of a row where they are few (of a greedy row: the best two tokens), and in
// the first reserved word of its result how many; 0: Sample reads the row.
const uint kListMax = 1024;
const uint kKeptListed = 6, kKeptSpare = 7;

const uint kNoToken = 0u;            // less than any key
const uint kMasked = 0x007fffffu;    // of -inf: tokens that are denied, places beyond the row; finite ones are higher
const uint kInfinite = 0xff800000u;  // of +inf; NaN is higher
const uint kAllIds = 0x7fffffffu;
const uint kMinusInfinity = 0xff800000u;  // as bits of a float
const uint kNoMask = 0xffffffffu;

Words row_words;
uint row_first, num_places;
uint mask_kind, mask_first, mask_count;  // mask_first: a word of the inputs

void set_row(Words words, uint row) {
  row_words = words;
  row_first = row * vocab_size;
  num_places = vocab_size;
  mask_kind = kNoMask;
}
// Behind set_row: the row is one that the record draws from.
void set_mask(uint record) {
  uint mask = inputs.w[record + kRecordMask];
  if (mask == kNoMask || (inputs.w[record + kRecordFlags] & kSampleForced) != 0u) return;
  uint at = inputs.w[kSmpMasks] + mask * kMaskRecordWords;
  mask_kind = inputs.w[at];
  mask_first = inputs.w[kSmpMaskWords] + inputs.w[at + 1u];
  mask_count = inputs.w[at + 2u];
  if (mask_kind == kMaskList) num_places = mask_count;
}
// Places beyond the row, kAllIds among them, stay what they are.
uint token_at(uint place) {
  return mask_kind == kMaskList && place < num_places ? inputs.w[mask_first + place] : place;
}

uint num_quads() { return (num_places + 3u) / 4u; }

uint key_of(uint bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;  // NaN
  if (bits == 0x80000000u) bits = 0u;                          // -0 and 0 are a tie
  return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
uvec4 keys_of(uvec4 bits) { return uvec4(key_of(bits.x), key_of(bits.y), key_of(bits.z), key_of(bits.w)); }
float number_of(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key); }

// Bits of kLoads quads, gl_WorkGroupSize.x quads apart. `now` is the one at hand. On a processor (groups of one subgroup)
// loads in flight gain nothing, and each word is a gather of its own: less code, which takes less time to compile.
const bool kOnGpu = gl_WorkGroupSize.x > kSubgroup;
const uint kLoads = kOnGpu ? 4 : 1;
struct Loads {
  uvec4 now, next, third, last;
};
uint load_word(uint place) {
  uint token = place < num_places ? token_at(place) : kAllIds;
  return token < vocab_size ? row_words.w[row_first + token] : kMinusInfinity;
}
uvec4 load_any(uint quad) {
  uint place = 4u * quad;
  if (kOnGpu && vocab_size % 4u == 0u && mask_kind != kMaskList)  // rows begin on 16 bytes
    return place < vocab_size ? Quads(row_words).q[row_first / 4u + quad] : uvec4(kMinusInfinity);
  return uvec4(load_word(place), load_word(place + 1u), load_word(place + 2u), load_word(place + 3u));
}
// With a mask of bits: eight neighbouring invocations read the same word.
uvec4 allow(uint quad, uvec4 bits) {
  uint allowed = quad / 8u < mask_count ? inputs.w[mask_first + quad / 8u] >> (quad % 8u * 4u) : 0u;
  return mix(uvec4(kMinusInfinity), bits, notEqual(allowed & uvec4(1u, 2u, 4u, 8u), uvec4(0u)));
}
uvec4 load_quad(uint quad) {
  uvec4 bits = load_any(quad);
  if (mask_kind == kMaskBits) bits = allow(quad, bits);
  return bits;
}
Loads load(uint quad) {
  if (!kOnGpu) return Loads(load_quad(quad), uvec4(0u), uvec4(0u), uvec4(0u));
  uint step = gl_WorkGroupSize.x;
  Loads l = Loads(load_any(quad), load_any(quad + step), load_any(quad + 2u * step), load_any(quad + 3u * step));
  if (mask_kind == kMaskBits)  // once all logits are asked for
    l = Loads(allow(quad, l.now), allow(quad + step, l.next), allow(quad + 2u * step, l.third),
              allow(quad + 3u * step, l.last));
  return l;
}
void turn(inout Loads l) {
  if (kOnGpu) l = Loads(l.next, l.third, l.last, l.now);
}
