// Rows of logits as the sampling kernels read them: as keys, unsigned words that order as the floats do, so that ranks
// and ties are exact also where a device flushes subnormals. A kernel sets the row's variables, the same ones in every
// invocation of its workgroup. A pass over the row takes quads (4 tokens) round robin, kLoads of them in flight.
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Words logits, processed;
  Words kept;          // [R] FilterResult
  Words inputs, rows;  // inputs: of the sample list
  Words candidates;    // [R, kListMax] keys, then as many ids
  Words counts, results;
  uint vocab_size, sample_rows_max;
};

// Filter leaves in `candidates` all kept tokens of a row where they are few (of a greedy row: the best two tokens), and in
// the first reserved word of its result how many; 0: Sample reads the row.
const uint kListMax = 1024;
const uint kKeptListed = 6, kKeptSpare = 7;

// Words of a SampleRecord.
const uint kRecordSlot = 0, kRecordPosition = 2, kRecordFlags = 3, kRecordForced = 4;

const uint kNoToken = 0u;            // key of a place beyond the row
const uint kMasked = 0x007fffffu;    // of -inf; finite ones are higher
const uint kInfinite = 0xff800000u;  // of +inf; NaN is higher
const uint kLoads = 4;               // quads in flight
const uint kAllIds = 0x7fffffffu;

Words row_words;
uint row_first;

uint key_of(uint bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;  // NaN
  if (bits == 0x80000000u) bits = 0u;                          // -0 and 0 are a tie
  return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
float number_of(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key); }

// Keys of tokens 4 quad to 4 quad + 3.
uvec4 load_keys(uint quad) {
  uvec4 keys = uvec4(kNoToken);
  uint id = 4u * quad;
  if (id >= vocab_size) return keys;
  if (vocab_size % 4u == 0u) {  // rows begin on 16 bytes
    uvec4 bits = Quads(row_words).q[row_first / 4u + quad];
    return uvec4(key_of(bits.x), key_of(bits.y), key_of(bits.z), key_of(bits.w));
  }
  for (uint c = 0; c < 4u && id + c < vocab_size; ++c) keys[c] = key_of(row_words.w[row_first + id + c]);
  return keys;
}
