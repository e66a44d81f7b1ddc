// out[t] = sum over t's routed rows k, in their order, of weights[k] * (products[k] + bias of the row's expert), for the
// outputs of ExpertDown that products has. Grid y = t, x walks the outputs.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

layout(constant_id = 10) const bool kBias = false;
layout(constant_id = 11) const bool kFours = false;  // an invocation has four outputs beside each other

layout(push_constant) uniform Push {
  Floats products, weights;
  Words ids;
  Floats bias, result;
  Words count;
  uint per_row, num_outputs, output_first, result_columns;
};

void main() {
  uint c = gl_GlobalInvocationID.x * (kFours ? 4u : 1u), t = gl_WorkGroupID.y;
  if (t >= count.w[0] || c >= num_outputs) return;
  if (kFours) {
    vec4 total = vec4(0.0);
    for (uint k = t * per_row; k < (t + 1u) * per_row; ++k) {
      vec4 y = Vec4s(products).v[(k * num_outputs + c) / 4u];
      if (kBias) y += Vec4s(bias).v[(ids.w[k] * result_columns + output_first + c) / 4u];
      total += weights.f[k] * y;
    }
    Vec4s(result).v[(t * result_columns + output_first + c) / 4u] = total;
    return;
  }
  float sum = 0.0;
  for (uint k = t * per_row; k < (t + 1u) * per_row; ++k) {
    float y = products.f[k * num_outputs + c];
    if (kBias) y += bias.f[ids.w[k] * result_columns + output_first + c];
    sum += weights.f[k] * y;
  }
  result.f[t * result_columns + output_first + c] = sum;
}
