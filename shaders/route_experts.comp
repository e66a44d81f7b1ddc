// Rows' scores become ids and weights of experts (core/ops/ops.h, RouteExperts): a workgroup, one subgroup where there are
// such, a row. A lane has every lanes-th expert; it knows the best of its own, and the best of all lanes is chosen k times.
// Probabilities, sums and weights are f32.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"

layout(constant_id = 10) const uint kScoring = 0;
layout(constant_id = 11) const bool kRenormalise = false;
layout(constant_id = 12) const bool kBias = false;
layout(constant_id = 13) const bool kCorrection = false;
layout(constant_id = 14) const bool kSharedGate = false;
layout(constant_id = 15) const uint kGroups = 1;
layout(constant_id = 16) const uint kGroupsUsed = 1;
layout(constant_id = 17) const uint kShared = 0;

layout(push_constant) uniform Push {
  Floats scores, bias, correction, shared_gate, x;
  Words ids;
  Floats weights;
  Words count;
  uint num_experts, columns, chosen, row_first;  // chosen: of a row, without shared ones; scores are of rows row_first and on
  float scale;
};

// Twin: core/ops/ops.h ExpertScoring.
const uint kSoftmax = 0, kSigmoid = 1, kSoftmaxOfChosen = 2, kSqrtSoftplus = 3;
const uint kExpertsMax = 1024, kUsedMax = 32;  // twins: core/ops/ops.h
// Probabilities grow with scores, so scores choose, which are finer; not where something else is added.
const bool kByScore = !kCorrection && kGroups == 1;

shared float probabilities[kExpertsMax];
shared uint keys[kExpertsMax];  // larger is better; 0: chosen
shared float group_sums[kGroups > 1 ? kExpertsMax : 1];
shared uint chosen_ids[kUsedMax];
shared float chosen_weights[kUsedMax];

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
// Larger for larger numbers, equal for both zeros, never 0.
uint key_of(float x) {
  uint bits = x == 0.0 ? 0u : floatBitsToUint(x);
  return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
float number_of(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key); }
float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }
float softplus(float x) {
  float y = exp(-abs(x));
  return max(x, 0.0) + (y < 0.001 ? y - 0.5 * y * y : log(1.0 + y));
}

// Experts of groups that are not among the best get the key of minus infinity.
void leave_groups(uint lane, uint lanes) {
  uint size = num_experts / kGroups;
  group_barrier();
  for (uint g = lane; g < kGroups; g += lanes) {
    uint best = 0u, second = 0u;
    for (uint e = g * size; e < (g + 1u) * size; ++e) {
      second = max(second, min(best, keys[e]));
      best = max(best, keys[e]);
    }
    group_sums[g] = number_of(best) + (size > 1u ? number_of(second) : 0.0);
  }
  group_barrier();
  for (uint e = lane; e < num_experts; e += lanes) {
    uint g = e / size, better = 0u;
    for (uint h = 0; h < kGroups; ++h)
      if (group_sums[h] > group_sums[g] || (group_sums[h] == group_sums[g] && h < g)) ++better;
    if (better >= kGroupsUsed) keys[e] = key_of(-kInfinity);
  }
}

void choose(uint lane, uint lanes) {
  uint best = 0u, best_id = 0xffffffffu;
  bool looks = true;
  for (uint i = 0; i < chosen; ++i) {
    if (looks) {
      best = 0u;
      for (uint e = lane; e < num_experts; e += lanes)
        if (keys[e] > best) {
          best = keys[e];
          best_id = e;
        }
    }
    uint most = group_max_uint(best), id = group_min_uint(best == most ? best_id : 0xffffffffu);
    looks = id == best_id && best == most;
    if (looks) {
      keys[id] = 0u;
      chosen_ids[i] = id;
      chosen_weights[i] = probabilities[id];
    }
  }
  group_barrier();
}

void main() {
  uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x, t = row_first + gl_WorkGroupID.x;
  if (t >= count.w[0]) return;
  uint per_row = chosen + kShared, from = gl_WorkGroupID.x * num_experts;
  float most = -kInfinity;
  uint is_bad = 0u;
  for (uint e = lane; e < num_experts; e += lanes) {
    float score = scores.f[from + e] + (kBias ? bias.f[e] : 0.0);
    probabilities[e] = score;
    most = max(most, score);
    if (is_nan(score)) is_bad = 1u;
  }
  if (group_or(is_bad) != 0u) {
    for (uint i = lane; i < per_row; i += lanes) {
      ids.w[t * per_row + i] = i < chosen ? i : num_experts + i - chosen;
      weights.f[t * per_row + i] = uintBitsToFloat(0x7fc00000u);
    }
    return;
  }
  float sum = 1.0;
  if (kScoring == kSoftmax) {
    most = group_max(most);
    sum = 0.0;
    for (uint e = lane; e < num_experts; e += lanes) sum += exp(probabilities[e] - most);
    sum = group_sum(sum);
  }
  for (uint e = lane; e < num_experts; e += lanes) {
    float score = probabilities[e], y = score;
    if (kScoring == kSoftmax) y = exp(score - most) / sum;
    if (kScoring == kSigmoid) y = sigmoid(score);
    if (kScoring == kSqrtSoftplus) y = sqrt(softplus(score));
    probabilities[e] = y;
    keys[e] = key_of(kByScore ? score : y + (kCorrection ? correction.f[e] : 0.0));
  }
  if (kGroups > 1) leave_groups(lane, lanes);
  choose(lane, lanes);
  float shared_weight = 1.0;
  if (kShared > 0u && kSharedGate) {
    float product = 0.0;
    for (uint c = lane; c < columns; c += lanes) product += x.f[t * columns + c] * shared_gate.f[c];
    shared_weight = sigmoid(group_sum(product));
  }
  // Few numbers, each lane for itself. Scores of kSoftmaxOfChosen come from the best on, unless corrected.
  float largest = -kInfinity;
  for (uint i = 0; i < chosen; ++i) largest = max(largest, chosen_weights[i]);
  sum = 0.0;
  for (uint i = 0; i < chosen; ++i)
    sum += kScoring == kSoftmaxOfChosen ? exp(chosen_weights[i] - largest) : chosen_weights[i];
  float divisor = kScoring == kSoftmaxOfChosen ? sum : 1.0;
  if (kRenormalise) divisor *= max(kScoring == kSoftmaxOfChosen ? 1.0 : sum, 0.00006103515625);
  for (uint i = lane; i < per_row; i += lanes) {
    bool is_chosen = i < chosen;
    uint at = min(i, chosen - 1u);
    float weight = kScoring == kSoftmaxOfChosen ? exp(chosen_weights[at] - largest) : chosen_weights[at];
    ids.w[t * per_row + i] = is_chosen ? chosen_ids[at] : num_experts + i - chosen;
    weights.f[t * per_row + i] = is_chosen ? weight * (scale / divisor) : shared_weight;
  }
}
