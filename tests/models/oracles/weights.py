"""Weights of the oracle models, made again bit for bit from a seed and their names. Needs numpy alone.

A tensor's numbers come from the raw words of a Philox counter generator whose key is the SHA-256 of seed and name: NumPy
promises that stream for ever, which it does not for its normal distribution. Four 16-bit parts of a word are added, so a
number is close to normally distributed, and rounded to bf16, nearest even: f32 and bf16 files hold the same numbers.

A fixture (make_oracles.py writes it) lists a model's tensors under Hugging Face's names, two kinds:
    [name, shape, "normal", mean, deviation]
    [name, shape, "mxfp4", exponent]   experts [E, in, out] as transformers keeps them. Blocks of 32 numbers along `in`:
                                       e2m1 codes times 2^n, n in {exponent - 1, exponent, exponent + 1}
"""

import hashlib
import json
import os

import numpy as np

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
DEVIATION = 65536 / np.sqrt(3.0)  # of the sum of four uniform 16-bit numbers
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def words(seed, name, count):
    """Random 64-bit words."""
    key = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:16], "little")
    return np.random.Philox(key=key).random_raw(count).astype("<u8")


def bf16_bits(values):
    bits = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def bf16(values):
    return (bf16_bits(values).astype("<u4") << 16).view("<f4")


def normal(seed, name, shape, mean, deviation):
    parts = words(seed, name, int(np.prod(shape))).view("<u2").reshape(-1, 4)
    centred = parts.astype(np.int64).sum(axis=1) - 2 * 65535
    return bf16((mean + centred * (deviation / DEVIATION)).astype(np.float32)).reshape(shape)


def mxfp4(seed, name, shape, exponent):
    """Codes 0 to 15 [E, out, in] and biased exponents [E, out, in / 32], both bytes."""
    experts, columns, rows = shape
    codes = (words(seed, name, experts * rows * columns) >> 60).astype(np.uint8).reshape(experts, rows, columns)
    steps = words(seed, name + " scales", experts * rows * columns // 32) % 3
    return codes, (steps.astype(np.int64) + exponent - 1 + 127).astype(np.uint8).reshape(experts, rows, columns // 32)


def from_mxfp4(codes, exponents):
    scales = np.ldexp(np.float32(1), exponents.astype(np.int32) - 127).astype(np.float32)
    return E2M1[codes] * np.repeat(scales, 32, axis=-1)


def tensors(fixture):
    """All of a model's, as float32 in transformers' shapes."""
    out = {}
    for name, shape, kind, *numbers in fixture["tensors"]:
        if kind == "normal":
            out[name] = normal(fixture["seed"], name, shape, *numbers)
        else:
            out[name] = np.ascontiguousarray(from_mxfp4(*mxfp4(fixture["seed"], name, shape, *numbers)).swapaxes(1, 2))
    return out


def mxfp4_tensors(fixture):
    """Name to codes and exponents, of those that have them."""
    return {name: mxfp4(fixture["seed"], name, shape, *numbers)
            for name, shape, kind, *numbers in fixture["tensors"] if kind == "mxfp4"}


def load(family):
    """The fixture's JSON, and its arrays (make_oracles.py says which)."""
    with open(os.path.join(FIXTURES, family + ".json"), encoding="utf-8") as file:
        fixture = json.load(file)
    with np.load(os.path.join(FIXTURES, family + ".npz")) as arrays:
        return fixture, dict(arrays)
