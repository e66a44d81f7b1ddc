#!/usr/bin/env python3
"""Writes the seeds of hf_folder_fuzz: the tiny folders of make_gguf_corpus.py with all their files, in one file or in two
with an index.

    make_folder_corpus.py [FOLDER]       default: corpus/hf_folder beside this script; the same files each time
"""

import json
import os
import struct
import sys
import tempfile

import make_gguf_corpus

END = 3  # the id of "<e>" in tokenizer.json
TEXTS = {
    "k": {"eos_token": "<e>", "add_bos_token": False, "clean_up_tokenization_spaces": False,
          "chat_template": [{"name": "default", "template": "{{ messages[0].content }}"}]},
    "g": {"eos_token_id": [END], "temperature": 0.6},
}
MODELOPT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}


def seed(folder, name, parts):
    with open(os.path.join(folder, name), "wb") as file:
        for letter, text in parts:
            file.write(b"\x1f" + letter.encode() + text)


def header_of(tensors):
    """Of these tensors, as they would lie in a file of their own."""
    header, end = {}, 0
    for name, entry in tensors.items():
        begin, end = end, end + entry["data_offsets"][1] - entry["data_offsets"][0]
        header[name] = {**entry, "data_offsets": [begin, end]}
    return json.dumps(header).encode()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "hf_folder")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        make_gguf_corpus.hugging_face(made)
        make_gguf_corpus.hugging_face_models(made)
        with open(os.path.join(made, "tokenizer.json"), "rb") as file:
            texts = [("t", file.read())] + [(letter, json.dumps(tree).encode()) for letter, tree in TEXTS.items()]
        for name in sorted(os.listdir(made)):
            if not name.endswith(".folder"):
                continue
            with open(os.path.join(made, name), "rb") as file:
                config, weights = file.read().split(b"\0", 1)
            header = weights[8:8 + struct.unpack("<Q", weights[:8])[0]].rstrip()
            name = name.removesuffix(".folder")
            seed(folder, name, [("c", config), ("M", header)] + texts)
            if name == "fp8_channel":  # the same, as a file beside the configuration says it
                bare = {key: value for key, value in json.loads(config).items() if key != "quantization_config"}
                seed(folder, "modelopt", [("c", json.dumps(bare).encode()), ("q", json.dumps(MODELOPT).encode()),
                                          ("j", b"{{ messages[0].content }}"), ("M", header)])
            tensors = list(json.loads(header).items())
            halves = dict(tensors[::2]), dict(tensors[1::2])
            index = {"metadata": {"total_size": 1}, "weight_map": {
                tensor: file for file, half in zip(("a.safetensors", "b.safetensors"), halves) for tensor in half}}
            seed(folder, f"{name}_shards", [("c", config), ("i", json.dumps(index).encode()), ("A", header_of(halves[0])),
                                            ("B", header_of(halves[1]))] + ([] if "_" in name else texts))


if __name__ == "__main__":
    main()
