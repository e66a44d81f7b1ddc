#!/usr/bin/env python3
"""Compares the byte-level BPE tokenizers with Hugging Face's `tokenizers`, string by string.

The Hugging Face side is built here from the vocabulary and merges of a GGUF file, with the normalizer and
pre-tokenizers that the models' tokenizer.json files have. Real vocabularies come from the files that
LLMRT_TEST_MODEL (SmolLM2) and LLMRT_TEST_MODEL_QWEN name; for the other pre-tokenizers small ones are trained here.

    hf_compare.py PROBE [--time]
"""

import argparse
import itertools
import json
import os
import random

import probe as probes
import strings

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    probes.skip("no Python package tokenizers")

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = TEKKEN.replace("]+|[^", "]+" + CONTRACTION + "|[^").replace("]*|\\p{N}", "]*" + CONTRACTION + "|\\p{N}{1,3}")
DEEPSEEK_V3 = (
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r'''[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+''',
)
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0"
    "-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-"
    "\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183"
    "\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b"
    "-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_LLM = ("[\r\n]", rf"\s?[{CASED}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", EAST_ASIAN)
DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN)


def split_then_bytes(*patterns, digits=False):
    return pre_tokenizers.Sequence([
        *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns),
        *([pre_tokenizers.Digits(individual_digits=True)] if digits else []),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


PRE_TOKENIZERS = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": lambda: pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    "llama-bpe": lambda: split_then_bytes(LLAMA3),
    "qwen2": lambda: split_then_bytes(LLAMA3.replace("{1,3}", "")),
    "qwen35": lambda: split_then_bytes(QWEN35),
    "gpt-4o": lambda: split_then_bytes(O200K),
    "tekken": lambda: split_then_bytes(TEKKEN),
    "deepseek-v3": lambda: split_then_bytes(*DEEPSEEK_V3),
    "deepseek-llm": lambda: split_then_bytes(*DEEPSEEK_LLM, digits=True),
    "deepseek-coder": lambda: split_then_bytes(*DEEPSEEK_CODER, digits=True),
}
WITH_NFC = ("qwen2", "qwen35")
WHOLE_WORDS = ("llama-bpe", "tekken")  # a word that is a token stays whole, whatever the merges say


def hugging_face(vocabulary):
    merges = [tuple(merge.split(" ")) for merge in vocabulary["merges"]]
    ids = {token: i for i, token in enumerate(vocabulary["tokens"])}
    pre = vocabulary["pre"]
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=pre in WHOLE_WORDS))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    if pre in WITH_NFC:
        tokenizer.normalizer = normalizers.NFC()
    for token, kind in zip(vocabulary["tokens"], vocabulary["types"]):
        if kind in (3, 4):
            tokenizer.add_tokens([AddedToken(token, special=kind == 3, normalized=False)])
    return tokenizer


def from_gguf(path):
    pre, tokens, types, merges = probes.gguf_fields(
        path, "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges")
    return {"model": "gpt2", "pre": pre, "tokens": tokens, "types": types, "merges": merges}


def trained(pre, size):
    """A vocabulary learnt from the test strings, with two special tokens; half of the bytes have no token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    kept = [character for i, character in enumerate(alphabet) if i % 2 or character.isascii()]
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=kept, show_progress=False)
    tokenizer.train_from_iterator(itertools.chain(strings.fixed(), strings.mixed(5, 3000)), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    if pre in WHOLE_WORDS:  # words that only the whole-word rule can reach
        merges = [merge for merge in merges if random.Random(merge).random() < 0.9 or len(merge) < 6]
        merges = reachable(merges, tokens)
    types = [1] * len(tokens) + [3, 3, 4]
    return {"model": "gpt2", "pre": pre, "types": types, "merges": merges,
            "tokens": tokens + ["<|begin_of_text|>", "<|eot_id|>", "<tool>"]}


def reachable(merges, tokens):
    """Hugging Face demands only that both halves and the whole are tokens."""
    known = set(tokens)
    return [merge for merge in merges if set(merge.split(" ")) <= known]


def inputs(specials):
    for text in itertools.chain(
            strings.fixed(specials), strings.mixed(1, 2000, specials), strings.random_code_points(2, 1500),
            strings.marks(4, 1000), strings.every_code_point()):
        yield text.encode("utf-8", "replace")
    for seed in range(3):  # longer than what is normalized at a time
        yield "".join(strings.marks(10 + seed, 2000)).encode()
        yield "".join(itertools.chain(*zip(strings.mixed(seed, 500), strings.marks(20 + seed, 500)))).encode("utf-8", "replace")
    yield from strings.random_bytes(3, 1500)


def compare(name, vocabulary, program):
    reference = hugging_face(vocabulary)
    probe = probes.tokenizer_probe(program, vocabulary)
    specials = [token for token, kind in zip(vocabulary["tokens"], vocabulary["types"]) if kind in (3, 4)]
    count = failures = 0
    for data in inputs(specials):
        text = data.decode("utf-8", "replace")
        expected = reference.encode(text, add_special_tokens=False).ids
        found = probe.encode(data)
        count += 1
        if found != expected:
            failures += 1
            if failures <= 10:
                at = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(expected), len(found)))
                print(f"{name}: {text[:200]!r}: at {at}: expected {expected[at:at + 8]}, found {found[at:at + 8]}")
            continue
        if reference.normalizer is None and not any(special in text for special in specials):
            reference.decoder = decoders.ByteLevel()
            if probe.decode(found).decode("utf-8", "replace") != reference.decode(expected):
                failures += 1
                print(f"{name}: decode of {text[:200]!r} differs")
    assert probe.close() == 0
    print(f"{name}: {count} strings, {failures} differ")
    return failures


def measure(name, vocabulary, program):
    text = " ".join(strings.mixed(9, 20000)).encode() + ("The cat sat on the mat, and it was fine. " * 20000).encode()
    probe = probes.tokenizer_probe(program, vocabulary)
    for label, data in (("mixed text", text), ("1 MiB of a", b"a" * 2**20), ("1 MiB of blanks", b" " * 2**20),
                        ("1 MiB of ab", b"ab" * 2**19), ("1 MiB of marks", "\u0301\u0316".encode() * 2**18)):
        print(f"{name}: {label}: {len(data) / probe.encode_seconds(data) / 1e6:.1f} MB/s")
    probe.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--time", action="store_true", help="measure speed instead")
    arguments = parser.parse_args()
    vocabularies = {f"{pre} (trained)": trained(pre, 2000) for pre in PRE_TOKENIZERS if pre != "smollm"}
    for variable in ("LLMRT_TEST_MODEL", "LLMRT_TEST_MODEL_QWEN"):
        path = os.environ.get(variable)
        if path:
            vocabularies[variable] = from_gguf(path)
        else:
            print(f"{variable} is not set: its vocabulary is not compared")
    act = measure if arguments.time else compare
    failures = [act(name, vocabulary, arguments.probe) for name, vocabulary in vocabularies.items()]
    return 1 if any(failures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
