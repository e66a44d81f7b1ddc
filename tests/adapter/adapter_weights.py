#!/usr/bin/env python3
"""Aim: an adapter changes the rows of a model that it should, by what it should, whichever files both come from.

    adapter_weights.py PROGRAM families    random adapters over every family of tests/models/oracles, as PEFT folders and
                                           GGUF files, over models as Hugging Face folders and GGUF files
    adapter_weights.py PROGRAM peft        adapters that PEFT itself saves; the merged weights are PEFT's

PROGRAM is adapter_check: the model's weights and the adapter's products must add up to the merged model's weights, group by
group. All kinds of files of one adapter must have one digest over one model. Needs numpy and gguf; peft and torch for the
second. Without them: skipped, with the name of the package.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "oracles"))
try:
    import numpy as np
    from gguf import GGUFWriter

    import containers
    import weights
    from families import FAMILIES
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# What adapters may change: not norms, routers, convolutions, and of latent attention not the matrices by head.
MODULES = re.compile(r"(model|backbone)\.layers\.\d+\.(self_attn|mlp|mixer|mamba|conv|feed_forward|linear_attn|shared_mlp)\."
                     r"(shared_experts?\.)?((q|k|v|o|out|in|gate|up|down|q_a|q_b|fc1_latent|fc2_latent)_proj|in_proj_\w+|"
                     r"kv_a_proj_with_mqa|w[123]|input_linear|output_linear)\.weight")
# Experts by matrices of each, and by one tensor for all: [E, out, in], of gpt-oss [E, in, out].
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
STACK = re.compile(r".*\.(experts\.(gate_up|up|down)_proj|block_sparse_moe\.(input|output)_linear\.weight)")
GGUF_FAMILIES = [name for name in FAMILIES if name != "gpt-oss"]  # whose RoPE has no key there


class Checks:
    def __init__(self, program):
        self.program, self.broken, self.num_checks, self.largest = program, [], 0, 0.0

    def run(self, what, *paths):
        """The program's JSON, or None where something differs."""
        done = subprocess.run([self.program, *paths], capture_output=True, text=True, check=False)
        self.num_checks += 1
        found = json.loads(done.stdout) if done.stdout else {}
        self.largest = max(self.largest, found.get("difference") or 0)
        if done.returncode != 0:
            self.broken.append(f"{what}: {done.stderr.strip() or found}")
            return None
        return found

    def refuses(self, what, text, *paths):
        done = subprocess.run([self.program, *paths], capture_output=True, text=True, check=False)
        self.num_checks += 1
        if done.returncode != 2 or text not in done.stderr:
            self.broken.append(f"{what}: expected an error with {text!r}, found {done.returncode} {done.stderr.strip()}")

    def conclude(self):
        print("\n".join(self.broken))
        print(f"{self.num_checks} checks, largest difference {self.largest:.2g} of a group's largest number")
        return 1 if self.broken else 0


def write_models(family, fixture, tensors, folder, kinds):
    """The same tensors as a Hugging Face folder and a GGUF file, both in float32."""
    usual, written = weights.tensors, containers.make_folder.write_safetensors
    weights.tensors = lambda _: dict(tensors)
    containers.make_folder.write_safetensors = lambda path, values, _: written(path, values, "f32")
    try:
        os.makedirs(folder)
        paths = {}
        if "folder" in kinds:
            paths["folder"] = os.path.join(folder, "model")
            containers.write_folder(fixture, paths["folder"])
        if "gguf" in kinds:
            paths["gguf"] = os.path.join(folder, "model.gguf")
            containers.write_gguf(containers.gguf_of(family, fixture), paths["gguf"])
        return paths
    finally:
        weights.tensors, containers.make_folder.write_safetensors = usual, written


def flattened(a, b):
    """A and B of all experts, as PEFT keeps those of a parameter: ranks of an expert in a row of A, experts of a rank in B."""
    flat_a, flat_b = a.reshape(-1, a.shape[2]), np.ascontiguousarray(b.transpose(1, 2, 0).reshape(b.shape[1], -1))
    # The product as ParamWrapper.get_delta_weight makes it (peft 0.21).
    made = np.einsum("ore,eri->eoi", flat_b.reshape(len(flat_b), -1, len(a)), flat_a.reshape(len(a), -1, a.shape[2]))
    assert np.allclose(made, b @ a, rtol=1e-4, atol=1e-4)
    return flat_a, flat_b


def peft_stacks(stacks):
    """The module's name for each stack: a module with two parameters wraps the second around the first."""
    names = {}
    for parameter in stacks:
        base, _, last = parameter.rpartition(".")
        has_second = last in ("gate_up_proj", "up_proj") and base + ".down_proj" in stacks
        names[parameter] = base + (".base_layer" if has_second else "")
    return {names[parameter]: flattened(*pair) for parameter, pair in stacks.items()}


def write_peft(folder, config, pairs, stacks=None):
    """pairs: module to A and B; stacks: parameter to those of all experts."""
    os.makedirs(folder)
    tensors = {}
    if stacks:
        config = {**config, "target_parameters": sorted(stacks),
                  "rank_pattern": {**config["rank_pattern"], **{name: a.shape[1] for name, (a, _) in stacks.items()}}}
        pairs = {**pairs, **peft_stacks(stacks)}
    for module, (a, b) in pairs.items():
        tensors[f"base_model.model.{module}.lora_A.weight"] = a
        tensors[f"base_model.model.{module}.lora_B.weight"] = b
    containers.make_folder.write_safetensors(os.path.join(folder, "adapter_model.safetensors"), tensors, "f32")
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "bias": "none", **config}, file)
    return folder


def gguf_stacks(family, config, stacks):
    """Each stack's A [E, rank, K] and B [E, N, rank] under GGUF's name; gates and other halves are two stacks there."""
    for parameter, (a, b) in stacks.items():
        value = b.swapaxes(1, 2) if FAMILIES[family]["arch"] == "gpt-oss" else b  # as the model's own tensors lie
        for canonical, part in containers.gguf_tensors(family, config, {parameter: value}).items():
            yield canonical, a, part


def write_gguf_adapter(path, family, config, alpha, pairs, stacks):
    """B has the rows of the matrix, in GGUF's order; A its columns, which are in another order behind V heads alone."""
    writer = GGUFWriter(path, FAMILIES[family]["arch"])
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    experts = {}
    for module, pair in pairs.items():
        if expert := EXPERT.fullmatch(module + ".weight"):
            experts.setdefault(expert[1] + ".{}." + expert[3] + ".weight", {})[int(expert[2])] = pair
    for name, of_experts in experts.items():
        a = np.stack([of_experts[e][0] for e in range(len(of_experts))])
        b = {name.format(e): pair[1] for e, pair in of_experts.items()}
        ((canonical, part),) = containers.gguf_tensors(family, config, b).items()
        writer.add_tensor(canonical + ".lora_a", np.ascontiguousarray(a, np.float32))
        writer.add_tensor(canonical + ".lora_b", np.ascontiguousarray(part, np.float32))
    for canonical, a, part in gguf_stacks(family, config, stacks):
        writer.add_tensor(canonical + ".lora_a", np.ascontiguousarray(a, np.float32))
        writer.add_tensor(canonical + ".lora_b", np.ascontiguousarray(part, np.float32))
    for module, (a, b) in pairs.items():
        if EXPERT.fullmatch(module + ".weight"):
            continue
        name = module + ".weight"
        is_out = module.endswith("linear_attn.out_proj")
        rows = {name: b} if is_out else containers.gguf_tensors(family, config, {name: b})
        for canonical, part in rows.items():
            if is_out:
                ((canonical, a),) = containers.gguf_tensors(family, config, {name: a}).items()
            writer.add_tensor(canonical + ".lora_a", np.ascontiguousarray(a, np.float32))
            writer.add_tensor(canonical + ".lora_b", np.ascontiguousarray(part, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_numbers(random, shape, columns, strength):
    """Of A or B; `strength` 0: as large as they come."""
    return weights.bf16(random.standard_normal(shape, np.float32) * np.float32(strength * columns**-0.5 if strength else 1))


def random_pairs(tensors, is_tied, random, strength=0):
    """Two matrices for three of four modules, of several ranks."""
    pairs = {}
    for name, value in tensors.items():
        if (MODULES.fullmatch(name) or (name == "lm_head.weight" and not is_tied)) and value.ndim == 2 and random.random() < 0.75:
            rank = int(random.choice([1, 4, 8, 20]))
            numbers = [random_numbers(random, shape, shape[-1], strength)
                       for shape in ((rank, value.shape[1]), (value.shape[0], rank))]
            pairs[name.removesuffix(".weight")] = tuple(numbers)
    return pairs


def random_experts(tensors, is_transposed, random, strength=0):
    """Pairs of experts with a matrix each, and stacks; all experts of three of four matrices, by one rank."""
    pairs, stacks, ranks = {}, {}, {}
    for name, value in tensors.items():
        expert = EXPERT.fullmatch(name)
        if not expert and not STACK.fullmatch(name):
            continue
        rank = ranks.setdefault((expert[1], expert[3]) if expert else name,
                                int(random.choice([1, 4, 8, 20])) if random.random() < 0.75 else 0)
        if rank == 0:
            continue
        before = value.shape[:-2]
        out, columns = value.shape[-2:][::-1] if is_transposed else value.shape[-2:]
        numbers = tuple(random_numbers(random, (*before, *shape), shape[-1], strength)
                        for shape in ((rank, columns), (out, rank)))
        if expert:
            pairs[name.removesuffix(".weight")] = numbers
        else:
            stacks[name] = numbers
    return pairs, stacks


ALPHA = 12.0


def adapted(family, strength=0):
    """A family's fixture, its tensors, these with an adapter merged, and the adapter's pairs and stacks."""
    fixture, _ = weights.load(family)
    config, tensors = fixture["config"], weights.tensors(fixture)
    random = np.random.default_rng(sum(family.encode()))
    pairs = random_pairs(tensors, config["tie_word_embeddings"], random, strength)
    assert len(pairs) >= 3, family
    is_transposed = FAMILIES[family]["arch"] == "gpt-oss"
    of_experts, stacks = random_experts(tensors, is_transposed, random, strength)
    assert bool(of_experts or stacks) == any("experts." in name or "block_sparse_moe" in name for name in tensors), family
    pairs |= of_experts
    merged = dict(tensors)
    for parameter, (a, b) in stacks.items():
        added = np.float64(np.float32(ALPHA / a.shape[1])) * (b.astype(np.float64) @ a)
        added = added.swapaxes(1, 2) if is_transposed else added
        merged[parameter] = (tensors[parameter] + added).astype(np.float32)
    for module, (a, b) in pairs.items():
        scale = np.float64(np.float32(ALPHA / len(a)))
        merged[module + ".weight"] = (tensors[module + ".weight"] + scale * (b.astype(np.float64) @ a)).astype(np.float32)
    return fixture, tensors, merged, pairs, stacks


def write_released(folder, config, pairs, stacks):
    """A PEFT folder under the names that released checkpoints and so adapters have."""
    def release(all_of):
        return {name.replace("model.", "backbone.") if config["model_type"] == "nemotron_h" else name: pair
                for name, pair in all_of.items()}
    released = release(pairs)
    return write_peft(folder, {"r": 8, "lora_alpha": ALPHA, "target_modules": sorted(released),
                               "rank_pattern": {module: len(a) for module, (a, _) in released.items()}}, released,
                      release(stacks))


def check_family(checks, family, folder):
    fixture, tensors, merged, pairs, stacks = adapted(family)
    config = fixture["config"]
    kinds = [kind for kind, skipped in (("folder", "gpt-oss-rounded"), ("gguf", "gpt-oss")) if family != skipped]
    base = write_models(family, fixture, tensors, os.path.join(folder, "base"), kinds)
    goal = write_models(family, fixture, merged, os.path.join(folder, "goal"), kinds)
    peft = write_released(os.path.join(folder, "peft"), config, pairs, stacks)
    # A folder's gate and up rows in one tensor, or q, k, v and z by head, are two tensors of GGUF: no name for both there.
    adapters = {"PEFT folder": peft,
                "GGUF adapter": write_gguf_adapter(os.path.join(folder, "adapter.gguf"), family, config, ALPHA, pairs, stacks)}
    has_own_names = any("input_linear" in module or "in_proj_qkvz" in module for module in pairs)
    for kind in kinds:
        digests = set()
        for which, path in adapters.items():
            if which == "GGUF adapter" and kind == "folder" and has_own_names:
                checks.refuses(f"{family}: {which} over a {kind}", "which it does not have", base[kind], path)
                continue
            found = checks.run(f"{family}: {which} over a {kind}", base[kind], path, goal[kind])
            if found:
                digests.add(found["digest"])
        if len(digests) > 1:
            checks.broken.append(f"{family}: over a {kind}: expected one digest, found {len(digests)}")
    # The check itself: another model's weights are not these.
    other = subprocess.run([checks.program, base[kinds[0]], peft, base[kinds[0]]], capture_output=True, check=False)
    if other.returncode != 1:
        checks.broken.append(f"{family}: expected a difference to the model itself, found {other.returncode}")


def run_families(program):
    checks = Checks(program)
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            check_family(checks, family, folder)
    return checks.conclude()


# What is given to LoraConfig beside random numbers; names are those of llama and qwen3.
PEFT_CONFIGS = {
    "usual": {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "rsLoRA": {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "k_proj", "down_proj"], "use_rslora": True},
    "patterns": {"r": 4, "lora_alpha": 3, "target_modules": ["q_proj", "k_proj", "up_proj", "gate_proj"],
                 "rank_pattern": {"layers.0.self_attn.q_proj": 16, r".*\.mlp\..*_proj": 7, "up_proj": 2},
                 "alpha_pattern": {"^model.layers.1.self_attn.k_proj": 5, r"(up|q)_proj": 9}},
    "patterns of rsLoRA": {"r": 4, "lora_alpha": 3, "target_modules": "all-linear", "use_rslora": True,
                           "rank_pattern": {"k_proj": 11}, "alpha_pattern": {"v_proj": 1}},
    "an expression": {"r": 8, "target_modules": r"model\.layers\.(0|1)\.(self_attn\.(q|k)|mlp\.(up|down))_proj"},
    "layers": {"r": 8, "target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
    "excluded": {"r": 8, "target_modules": ["q_proj", "k_proj"], "exclude_modules": ["layers.0.self_attn.q_proj"]},
    "head": {"r": 8, "target_modules": ["lm_head", "k_proj"]},
    "all linear": {"r": 128, "lora_alpha": 1, "target_modules": "all-linear"},
}


def check_peft(checks, family, name, folder, modules):
    torch, transformers, peft = modules
    fixture, _ = weights.load(family)
    tensors = weights.tensors(fixture)
    keys = ("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "head_dim",
            "intermediate_size", "tie_word_embeddings", "max_position_embeddings", "rms_norm_eps")
    make = {"llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
            "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM)}[family]
    config = make[0](**{key: fixture["config"][key] for key in keys})
    model = make[1](config).float()
    absent, unknown = model.load_state_dict({key: torch.tensor(value) for key, value in tensors.items()}, strict=False)
    assert not unknown and set(absent) <= {"lm_head.weight"}, (absent, unknown)
    torch.manual_seed(3)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **PEFT_CONFIGS[name]))
    with torch.no_grad():
        for key, value in adapted.named_parameters():
            if "lora_" in key:
                value.copy_(torch.randn_like(value))
    saved = os.path.join(folder, "adapter")
    adapted.save_pretrained(saved)
    merged = {key: value.detach().numpy() for key, value in adapted.merge_and_unload().state_dict().items()
              if key in tensors}
    assert any(not np.array_equal(merged[key], tensors[key]) for key in tensors)
    base = write_models(family, fixture, tensors, os.path.join(folder, "base"), ["folder", "gguf"])
    goal = write_models(family, fixture, merged, os.path.join(folder, "goal"), ["folder", "gguf"])
    for kind, path in base.items():
        checks.run(f"{family}: {name}, over a {kind}", path, saved, goal[kind])


def run_peft(program):
    try:
        import peft
        import torch
        import transformers
    except ImportError as missing:
        print(f"skipped: {missing}")
        return 77
    checks = Checks(program)
    for family in ("llama", "qwen3"):
        for name in PEFT_CONFIGS:
            if family == "qwen3" and name == "head":
                continue  # tied: what PEFT merges into the head would change the embedding too
            with tempfile.TemporaryDirectory() as folder:
                check_peft(checks, family, name, folder, (torch, transformers, peft))
    return checks.conclude()


if __name__ == "__main__":
    sys.exit({"families": run_families, "peft": run_peft}[sys.argv[2]](sys.argv[1]))
