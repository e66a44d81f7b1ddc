// Rows of logits as the sampling kernels read them: as keys, unsigned words that order as the floats do, so that ranks
// and ties are exact also where a device flushes subnormals. A kernel sets the row's variables, the same ones in every
// invocation of its workgroup. A pass over the row takes quads (4 tokens) round robin, kLoads of them in flight; the loops over
// what was loaded are not unrolled, or code would grow by that factor and drivers take long to compile it.
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

// Words of a SampleRecord.
const uint kRecordSlot = 0, kRecordPosition = 2, kRecordFlags = 3, kRecordForced = 4;

const uint kNoToken = 0u;            // less than any key
const uint kMasked = 0x007fffffu;    // of -inf, and of places beyond the row; finite ones are higher
const uint kInfinite = 0xff800000u;  // of +inf; NaN is higher
const uint kAllIds = 0x7fffffffu;

Words row_words;
uint row_first;

uint num_quads() { return (vocab_size + 3u) / 4u; }

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
uint load_word(uint id) { return id < vocab_size ? row_words.w[row_first + id] : 0xff800000u; }
uvec4 load_quad(uint quad) {
  uint id = 4u * quad;
  if (kOnGpu && vocab_size % 4u == 0u)  // rows begin on 16 bytes
    return id < vocab_size ? Quads(row_words).q[row_first / 4u + quad] : uvec4(0xff800000u);
  return uvec4(load_word(id), load_word(id + 1u), load_word(id + 2u), load_word(id + 3u));
}
Loads load(uint quad) {
  if (!kOnGpu) return Loads(load_quad(quad), uvec4(0u), uvec4(0u), uvec4(0u));
  return Loads(load_quad(quad), load_quad(quad + gl_WorkGroupSize.x), load_quad(quad + 2u * gl_WorkGroupSize.x),
               load_quad(quad + 3u * gl_WorkGroupSize.x));
}
void turn(inout Loads l) {
  if (kOnGpu) l = Loads(l.next, l.third, l.last, l.now);
}
