#!/usr/bin/env python3
"""Writes corpus/adapter: adapters of the small model of gguf_bytes.h, whole and refused. Needs nothing but Python."""

import json
import os
import struct

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "adapter")
SHAPES = {"self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32), "self_attn.o_proj": (32, 32),
          "mlp.gate_proj": (48, 32), "mlp.up_proj": (48, 32), "mlp.down_proj": (32, 48)}
GGUF_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "mlp.down_proj": "ffn_down"}


def header(modules, rank=2, dtype="F32"):
    entries, at, size = {}, 0, {"F32": 4, "BF16": 2, "F8_E4M3": 1}[dtype]
    for module in modules:
        rows, columns = (8, 32) if module == "lm_head" else SHAPES[module]
        name = "base_model.model." + (module if module == "lm_head" else f"model.layers.0.{module}")
        for half, shape in (("A", [rank, columns]), ("B", [rows, rank])):
            end = at + shape[0] * shape[1] * size
            entries[f"{name}.lora_{half}.weight"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
            at = end
    return json.dumps(entries, separators=(",", ":"))


def peft(entries, **config):
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "target_modules": ["q_proj", "k_proj", "down_proj"],
              **config}
    return json.dumps(config, separators=(",", ":")).encode() + b"\0" + entries.encode()


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(modules, rank=2, tokens=()):
    pairs = [text(key) + struct.pack("<I", 8) + text(value)
             for key, value in (("general.type", "adapter"), ("general.architecture", "llama"), ("adapter.type", "lora"))]
    pairs.append(text("adapter.lora.alpha") + struct.pack("<If", 6, 4.0))
    if tokens:
        pairs.append(text("adapter.alora.invocation_tokens") + struct.pack("<IIQ", 9, 4, len(tokens)) +
                     struct.pack(f"<{len(tokens)}I", *tokens))
    table, data = b"", b""
    for module in modules:
        rows, columns = SHAPES[module]
        for half, dims in (("a", (columns, rank)), ("b", (rank, rows))):
            table += text(f"blk.0.{GGUF_NAMES[module]}.weight.lora_{half}") + struct.pack("<IQQIQ", 2, *dims, 0, len(data))
            data += b"\x3c" * (dims[0] * dims[1] * 4)
            data += b"\0" * (-len(data) % 32)
    out = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(modules), len(pairs)) + b"".join(pairs) + table
    return out + b"\0" * (-len(out) % 32) + data


SEEDS = {
    "usual": peft(header(["self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"])),
    "bf16": peft(header(["self_attn.q_proj"], dtype="BF16")),
    "f8": peft(header(["self_attn.q_proj"], dtype="F8_E4M3")),
    "all_linear": peft(header(SHAPES), target_modules="all-linear", use_rslora=True),
    "head": peft(header(["lm_head"]), target_modules=["lm_head"]),
    "expression": peft(header(["mlp.up_proj"]), target_modules=r"model\.layers\.(0|1)\..*(up|q)_proj", exclude_modules=["x"]),
    "patterns": peft(header(["self_attn.q_proj"], 3), rank_pattern={r"^model.*q_proj": 3, "k_proj": 1}, alpha_pattern={"q_proj": 1}),
    "layers": peft(header(["self_attn.q_proj"]), layers_to_transform=[0], layers_pattern="layers"),
    "invocation": peft(header(["self_attn.q_proj"]), alora_invocation_tokens=[1, 2]),
    "dora": peft(header(["self_attn.q_proj"]), use_dora=True, init_lora_weights="pissa", modules_to_save=["lm_head"]),
    "gguf": gguf(GGUF_NAMES),
    "gguf_invocation": gguf(["mlp.down_proj"], 1, [3, 7]),
}

if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    for name, seed in SEEDS.items():
        with open(os.path.join(FOLDER, name), "wb") as file:
            file.write(seed)
