#!/usr/bin/env python3
"""Writes the first inputs of kv_segment_fuzz: make_segment_corpus.py FOLDER. Checksums are the target's to fill in."""

import os
import struct
import sys


def record(group, key, tokens=(1, 2), live=True, size=(16, 24)):
    state = 0x4B564231 if live else 0x4B564230
    header = struct.pack("<IIIIQQ", state, group, len(tokens), 0, size[group], 5) + bytes([key] * 32) + bytes(16)
    return header + struct.pack(f"<{len(tokens)}i", *tokens) + bytes([key] * size[group])


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    head = bytes(56)
    inputs = {
        "empty": b"\1",
        "one": b"\1" + head + record(0, 1),
        "two_groups": b"\1" + head + record(0, 1) + record(1, 2),
        "dead": b"\1" + head + record(0, 1, live=False) + record(0, 3),
        "twice": b"\1" + head + record(0, 4) + record(0, 4, tokens=(9, 9)),
        "cut": b"\1" + head + record(0, 1) + record(0, 2)[:50],
        "unsealed": b"\0" + head + record(0, 1),
    }
    for name, data in inputs.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
