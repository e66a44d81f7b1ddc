// GLSL door of the noise source; every step is `precise`, so that it is bit-equal to the host's.
float noise_mul(float a, float b) { precise float x = a * b; return x; }
float noise_add(float a, float b) { precise float x = a + b; return x; }
#define LLMRT_FN
#define LLMRT_UINT uint
#define LLMRT_MUL(a, b) noise_mul(a, b)
#define LLMRT_ADD(a, b) noise_add(a, b)
#define LLMRT_BITS_TO_FLOAT(u) uintBitsToFloat(u)
#define LLMRT_FLOAT_TO_BITS(f) floatBitsToUint(f)
#define LLMRT_UINT_TO_FLOAT(u) float(u)
#define LLMRT_MSB(u) findMSB(u)
#include "core/sample/gumbel.inc"
