// FilterResult as Filter writes it and Sample reads it. The two words that are reserved in it carry, inside a sample list,
// how many tokens `candidates` lists (all that are kept; 0: read the row) and whether filter_radix has still to run.
struct Kept {
  float cutoff;
  int cutoff_id;
  float max_logit, log_sum_exp;
  uint support, flags, num_listed, needs_radix;
};
void store_kept(uint r, Kept k) {
  if (gl_LocalInvocationID.x != 0u) return;
  uint at = r * kKeptWords;
  kept.w[at] = floatBitsToUint(k.cutoff);
  kept.w[at + 1u] = uint(k.cutoff_id);
  kept.w[at + 2u] = floatBitsToUint(k.max_logit);
  kept.w[at + 3u] = floatBitsToUint(k.log_sum_exp);
  kept.w[at + 4u] = k.support;
  kept.w[at + 5u] = k.flags;
  kept.w[at + 6u] = k.num_listed;
  kept.w[at + 7u] = k.needs_radix;
}
Kept load_kept(uint r) {
  uint at = r * kKeptWords;
  return Kept(uintBitsToFloat(kept.w[at]), int(kept.w[at + 1u]), uintBitsToFloat(kept.w[at + 2u]),
              uintBitsToFloat(kept.w[at + 3u]), kept.w[at + 4u], kept.w[at + 5u], kept.w[at + 6u], kept.w[at + 7u]);
}
bool is_kept(Kept k, float l, uint id) { return l > k.cutoff || (l == k.cutoff && int(id) <= k.cutoff_id); }
