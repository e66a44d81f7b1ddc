#!/usr/bin/env python3
"""Prints the table of dequant_test.cpp: for each encoding a hash of what the package `gguf` makes of fixed blocks."""
import gguf
import numpy as np

BLOCKS = 8
MASK = 0xFFFFFFFF
# Byte offsets, inside a block, of the high bytes of 16-bit (or 32-bit) floats.
FLOATS = {"F32": (4, [3]), "F16": (2, [1]), "BF16": (2, [1]), "Q4_0": (18, [1]), "Q4_1": (20, [1, 3]), "Q5_0": (22, [1]),
          "Q5_1": (24, [1, 3]), "Q8_0": (34, [1]), "Q4_K": (144, [1, 3]), "Q5_K": (176, [1, 3]), "Q6_K": (210, [209]),
          "MXFP4": (17, [0]), "FP8": (132, [3])}


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


def fp8(data):  # core/weights/encoding.h
    numbers = []
    for byte in range(256):
        exponent, mantissa = byte >> 3 & 15, byte & 7
        value = mantissa * 2.0 ** -9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        numbers.append(float("nan") if byte & 127 == 127 else -value if byte & 128 else value)
    blocks = data.reshape(BLOCKS, 132)
    scales = blocks[:, :4].copy().view("<f4")
    values = (scales * np.array(numbers, dtype=np.float32)[blocks[:, 4:]]).astype(np.float32)
    return np.where(np.isnan(values), np.float32("nan"), values)  # one NaN of all


for name, (block_bytes, highs) in FLOATS.items():
    count = BLOCKS * block_bytes
    data = np.array([mix(i) & 255 for i in range(count)], dtype=np.uint8)
    for block in range(BLOCKS):
        for offset in highs:  # finite, below 2
            data[block * block_bytes + offset] &= 0xBF
    values = fp8(data) if name == "FP8" else gguf.dequantize(
        data.reshape(1, count), gguf.GGMLQuantizationType[name]).astype(np.float32)
    if name == "MXFP4":  # the package has no minus zero
        nibbles = data.reshape(BLOCKS, block_bytes)[:, 1:]
        signs = np.concatenate([nibbles & 8, nibbles >> 4 & 8], axis=1).reshape(values.shape)
        values = np.where((values == 0) & (signs != 0), np.float32(-0.0), values)
    print(f'    {{"{name.lower()}", {values.size}, 0x{fnv(values.tobytes()):016x}ull}},')
