#!/usr/bin/env python3
"""Aim: the layer of a model that drafts (MTP) gives the logits that its formulas give, for each family and container.

Method: transformers leaves such layers out, so the formulas are written here once more, in NumPy and float64, on weights under
Hugging Face's names. They and the program read the same random tokens and hidden states: as a prompt and as runs of four.

    draft_heads_test.py REFERENCE_PROGRAM PROGRAM [--device auto] [--only NAME]
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np

    import containers
    import weights
    from families import VOCABULARY
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOKENS = 61
# As the oracles': of the reference, whose keys and values are f16, and of a device, whose activations are too; there two
# experts that are almost equally good may change places.
BOUND, DEVICE_BOUND = (0.012, 0.0025, 0), (0.05, 0.008, 0.02)
# In the formulas here: each must be told.
MISTAKES = ("no norm", "an earlier state", "halves swapped")
# Of tokens for which no two experts are almost equally good.
SEEDS = {"qwen3next": 13}
# A folder of qwen35moe has its experts in a form that layers which draft are not read in.
CONTAINERS = [("qwen35", "gguf"), ("qwen35", "folder"), ("qwen35moe", "gguf"), ("qwen3next", "gguf"), ("qwen3next", "folder"),
              ("glm4-moe-lite", "gguf"), ("glm4-moe-lite", "folder")]


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def turned(x, theta, dim, is_interleaved):
    """x [T, heads, d]: the first `dim` numbers of each head turned by their positions; pairs are halves, or neighbours."""
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = (x[..., 0:dim:2], x[..., 1:dim:2]) if is_interleaved else (x[..., :dim // 2], x[..., dim // 2:dim])
    # Where they come to lie is nobody's business: q and k are alike.
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, x[..., dim:]], axis=-1)


def attend(q, k, v, scale):
    """Causal, q [T, H, d], k and v [T, K, d]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("thd,shd->hts", q, k) * scale
    scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    return np.einsum("hts,shd->thd", softmax(scores), v).reshape(len(q), -1)


class Head:
    def __init__(self, fixture):
        config = fixture["config"]
        self.config, self.is_glm = config, config["model_type"] == "glm4_moe_lite"
        tensors = weights.tensors(fixture) | containers.draft_tensors(fixture)
        self.w = {name: value.astype(np.float64) for name, value in tensors.items()}
        layers = config["num_hidden_layers"]
        self.root, self.layer = (f"model.layers.{layers}.",) * 2 if self.is_glm else ("mtp.", "mtp.layers.0.")
        self.theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]

    def norm(self, x, name, eps=None):
        weight = self.w[name + ".weight"] + (0 if self.is_glm else 1)
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + (eps or self.config["rms_norm_eps"])) * weight

    def of(self, x, name):
        return x @ self.w[self.layer + name + ".weight"].T

    def gated_attention(self, x):
        config, dim = self.config, self.config["head_dim"]
        both = self.of(x, "self_attn.q_proj").reshape(len(x), config["num_attention_heads"], 2 * dim)
        q, gate = both[..., :dim], both[..., dim:]
        k = self.of(x, "self_attn.k_proj").reshape(len(x), -1, dim)
        v = self.of(x, "self_attn.v_proj").reshape(len(x), -1, dim)
        q, k = self.norm(q, self.layer + "self_attn.q_norm"), self.norm(k, self.layer + "self_attn.k_norm")
        q, k = turned(q, self.theta, dim // 4, False), turned(k, self.theta, dim // 4, False)
        out = attend(q, k, v, dim ** -0.5) * sigmoid(gate.reshape(len(x), -1))
        return self.of(out, "self_attn.o_proj")

    def latent_attention(self, x):
        config, heads = self.config, self.config["num_attention_heads"]
        nope, rope, rank = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["kv_lora_rank"]
        q = self.of(self.norm(self.of(x, "self_attn.q_a_proj"), self.layer + "self_attn.q_a_layernorm", 1e-6),
                    "self_attn.q_b_proj").reshape(len(x), heads, nope + rope)
        latent, key = np.split(self.of(x, "self_attn.kv_a_proj_with_mqa"), [rank], axis=1)
        kv = self.of(self.norm(latent, self.layer + "self_attn.kv_a_layernorm", 1e-6), "self_attn.kv_b_proj")
        kv = kv.reshape(len(x), heads, -1)
        q = np.concatenate([q[..., :nope], turned(q[..., nope:], self.theta, rope, True)], axis=-1)
        key = np.repeat(turned(key[:, None], self.theta, rope, True), heads, axis=1)
        out = attend(q, np.concatenate([kv[..., :nope], key], axis=-1), kv[..., nope:], (nope + rope) ** -0.5)
        return self.of(out, "self_attn.o_proj")

    def dense(self, x, name):
        return self.of(silu(self.of(x, name + ".gate_proj")) * self.of(x, name + ".up_proj"), name + ".down_proj")

    def expert(self, x, expert):
        stack = self.layer + "mlp.experts."
        if stack + "gate_up_proj" not in self.w:
            return self.dense(x, f"mlp.experts.{expert}")
        gate, up = np.split(self.w[stack + "gate_up_proj"][expert] @ x, 2)
        return self.w[stack + "down_proj"][expert] @ (silu(gate) * up)

    def feed_forward(self, x):
        config = self.config
        if self.layer + "mlp.gate.weight" not in self.w:
            return self.dense(x, "mlp")
        scores = self.of(x, "mlp.gate")
        chances = sigmoid(scores) if self.is_glm else softmax(scores)
        correction = self.w.get(self.layer + "mlp.gate.e_score_correction_bias", 0)
        chosen = np.argsort(-(chances + correction), axis=1)[:, :config["num_experts_per_tok"]]
        shares = np.take_along_axis(chances, chosen, axis=1)
        shares *= config.get("routed_scaling_factor", 1.0) / shares.sum(axis=1, keepdims=True)
        out = np.stack([sum(share * self.expert(row, expert) for share, expert in zip(*pair)) for row, *pair in
                        zip(x, shares, chosen)])
        if self.is_glm:
            return out + self.dense(x, "mlp.shared_experts")
        return out + sigmoid(self.of(x, "mlp.shared_expert_gate")) * self.dense(x, "mlp.shared_expert")

    def logits(self, tokens, hidden, mistake=None):
        token_norm, hidden_norm, both, last = (
            ("enorm", "hnorm", "eh_proj", "shared_head.norm") if self.is_glm
            else ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"))
        embedded = self.w["model.embed_tokens.weight"][tokens]
        halves = [self.norm(embedded, self.root + token_norm),
                  hidden if mistake == "no norm" else self.norm(hidden, self.root + hidden_norm)]
        if mistake == "an earlier state":
            halves[1] = np.roll(halves[1], 1, axis=0)
        pair = np.concatenate(halves[::-1] if mistake == "halves swapped" else halves, axis=1)
        x = pair @ self.w[f"{self.root}{both}.weight"].T
        normed = self.norm(x, self.layer + "input_layernorm")
        x = x + (self.latent_attention(normed) if self.is_glm else self.gated_attention(normed))
        x = x + self.feed_forward(self.norm(x, self.layer + "post_attention_layernorm"))
        return self.norm(x, self.root + last) @ self.w["lm_head.weight"].T


def log_softmax(logits):
    return np.log(softmax(logits.astype(np.float64)))


def check(program, device, family, container, folder, bounds):
    """Lines of what is broken."""
    fixture, _ = weights.load(family)
    path = os.path.join(folder, f"{family}-{container}-{device.replace(':', '-')}")
    if container == "gguf":
        containers.write_gguf(containers.gguf_of(family, fixture), path)
    else:
        containers.write_folder(fixture, path)
    random = np.random.default_rng(SEEDS.get(family, 7))
    tokens = random.integers(0, VOCABULARY, TOKENS).astype(np.int32)
    hidden = random.normal(0, 1.5, (TOKENS, fixture["config"]["hidden_size"])).astype(np.float32)
    made = subprocess.run([program, device, path, str(TOKENS)], input=tokens.tobytes() + hidden.tobytes(),
                          capture_output=True, check=False)
    what = f"{family} {container} on {device}"
    if made.returncode != 0:
        return [f"{what}: {made.stderr.decode(errors='replace').strip()}"]
    found = np.frombuffer(made.stdout, np.float32).reshape(TOKENS, VOCABULARY)
    head, exact = Head(fixture), hidden.astype(np.float64)

    def differences(mistake=None):
        return np.abs(log_softmax(found) - log_softmax(head.logits(tokens, exact, mistake)))

    for mistake in MISTAKES:
        if differences(mistake).mean() <= bounds[1]:
            return [f"{what}: expected differences of more than {bounds[1]} in the mean with a mistake: {mistake}"]
    difference = differences()
    largest, mean, share = difference.max(), difference.mean(), (difference > bounds[0]).mean()
    print(f"{what}: {difference.size} log-probabilities, largest difference {largest:.4f}, mean {mean:.5f}")
    if share <= bounds[2] and mean <= bounds[1]:
        return []
    return [f"{what}: expected differences of at most {bounds[0]} and {bounds[1]} in the mean, found {largest:.4f}, {mean:.5f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference_program")
    parser.add_argument("program")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", help="a family")
    arguments = parser.parse_args()
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        for family, container in CONTAINERS:
            if arguments.only not in (None, family):
                continue
            broken += check(arguments.reference_program, "reference:0", family, container, folder, BOUND)
            if container == "gguf":
                broken += check(arguments.program, arguments.device, family, container, folder, DEVICE_BOUND)
    print("\n".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
