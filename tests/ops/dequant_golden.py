#!/usr/bin/env python3
"""Prints the table of dequant_test.cpp: for each encoding a hash of what the package `gguf` makes of fixed blocks."""
import gguf
import numpy as np

BLOCKS = 8
MASK = 0xFFFFFFFF
# Byte offsets, inside a block, of the high bytes of 16-bit (or 32-bit) floats.
FLOATS = {"F32": (4, [3]), "F16": (2, [1]), "BF16": (2, [1]), "Q4_0": (18, [1]), "Q4_1": (20, [1, 3]), "Q5_0": (22, [1]),
          "Q5_1": (24, [1, 3]), "Q8_0": (34, [1]), "Q4_K": (144, [1, 3]), "Q5_K": (176, [1, 3]), "Q6_K": (210, [209])}


def mix(x):  # noise_mix of core/sample/gumbel.inc
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK
    x ^= x >> 15
    x = x * 0x846CA68B & MASK
    return x ^ x >> 16


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


for name, (block_bytes, highs) in FLOATS.items():
    count = BLOCKS * block_bytes
    data = np.array([mix(i) & 255 for i in range(count)], dtype=np.uint8)
    for block in range(BLOCKS):
        for offset in highs:  # finite, below 2
            data[block * block_bytes + offset] &= 0xBF
    values = gguf.dequantize(data.reshape(1, count), gguf.GGMLQuantizationType[name]).astype(np.float32)
    print(f'    {{"{name.lower()}", {values.size}, 0x{fnv(values.tobytes()):016x}ull}},')
