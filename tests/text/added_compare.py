#!/usr/bin/env python3
"""Compares added tokens (special and user-defined) with Hugging Face's `tokenizers`, string by string: inside SentencePiece
vocabularies as LlamaTokenizerFast (legacy) has them, and inside byte-level BPE.

    added_compare.py PROBE [--variants]

The vocabularies are learnt here. GGUF does not carry an added token's flags; every one is taken with lstrip, rstrip,
single_word and normalized false. --variants counts what differs from tokens that have one of them set.
"""

import argparse
import itertools
import json
import tempfile

import probe as probes
import strings

try:
    import sentencepiece
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
except ImportError:
    probes.skip("no Python packages sentencepiece and tokenizers")

import hf_compare
import spm_compare

CONTROL = ["<|im_start|>", "<|im_end|>", "<|im", "</s><s>"]
# Overlapping ones, ones with blanks inside and around, and one that other tokens begin with.
USER = ["<tool_call>", "</tool_call>", "<tool", "    ", "  ", " x ", "\n\n", "\t", "ab", "abab", "bab", "<|im_start|>user", "\u00e9t\u00e9", "\u3000"]
KINDS = {**dict.fromkeys(CONTROL, 3), **dict.fromkeys(USER, 4)}


def merges_of(scores):
    """As transformers makes them from a SentencePiece model: every split of a piece into pieces, by the piece's score."""
    found = []
    for piece, score in scores.items():
        local = [(piece[:i], piece[i:], score) for i in range(1, len(piece)) if piece[:i] in scores and piece[i:] in scores]
        found += sorted(local, key=lambda split: (scores[split[0]], scores[split[1]]), reverse=True)
    return [split[:2] for split in sorted(found, key=lambda split: split[2], reverse=True)]


def sentencepiece_pair(folder, prefix, metaspace=None):
    """`metaspace`: None, or the prepend_scheme of that pre-tokenizer; then, and without a prefix, pairs merge by the merges."""
    model = spm_compare.train(folder, f"added_{prefix}", add_dummy_prefix=prefix)
    vocabulary = spm_compare.vocabulary_of(model, add_dummy_prefix=prefix)
    ids = {token: i for i, token in enumerate(vocabulary["tokens"])}
    scores = {token: vocabulary["scores"][i] for token, i in ids.items() if vocabulary["types"][i] == 1}
    merges = merges_of(scores)

    def reference(**flags):
        tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        steps = [normalizers.Prepend("\u2581")] if prefix else []
        if metaspace:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", metaspace, split=False)
        else:
            tokenizer.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence([
            decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if prefix else [])])
        tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
        return with_added(tokenizer, **flags)

    if metaspace or not prefix:  # a list in which some are missing and the order is not the scores': both count
        merges = [merge for i, merge in enumerate(merges) if i % 7][::-1] if metaspace == "always" else merges
        vocabulary["merges"] = [" ".join(merge) for merge in merges]
    if metaspace:
        vocabulary["space_prefix"] = {"first": "first_unless_blank", "always": "unless_blank"}[metaspace]
    return with_kinds(vocabulary), reference


def bpe_pair(pre):
    vocabulary = hf_compare.trained(pre, 1500)
    for field in ("tokens", "types"):
        vocabulary[field] = vocabulary[field][:-3]  # its own added tokens
    ids = {token: i for i, token in enumerate(vocabulary["tokens"])}
    merges = [tuple(merge.split(" ")) for merge in vocabulary["merges"]]

    def reference(**flags):
        tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=pre == "llama-bpe"))
        tokenizer.pre_tokenizer = hf_compare.PRE_TOKENIZERS[pre]()
        if pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        return with_added(tokenizer, **flags)

    return with_kinds(vocabulary), reference


def with_kinds(vocabulary):
    for token, kind in KINDS.items():
        if token not in vocabulary["tokens"]:
            vocabulary["tokens"].append(token)
            vocabulary["types"].append(kind)
            vocabulary.get("scores", []).append(-1000.0)
        else:
            vocabulary["types"][vocabulary["tokens"].index(token)] = kind
    return vocabulary


def with_added(tokenizer, lstrip=False, rstrip=False, normalized=False, single_word=False):
    for token, kind in KINDS.items():
        tokenizer.add_tokens([AddedToken(token, special=kind == 3, normalized=normalized and kind == 4, lstrip=lstrip,
                                         rstrip=rstrip, single_word=single_word)])
    return tokenizer


def inputs():
    yield from ("<|im_start|>", "a<tool_call>b", "a    b", "<|im_start|>user\n", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    specials = list(KINDS)
    for text in itertools.chain(strings.fixed(specials), strings.mixed(1, 2500, specials), strings.mixed(2, 2500, specials + specials)):
        if "\u2581" not in text:
            yield text


def compare(name, vocabulary, reference, program, flags=None):
    tokenizer = reference(**(flags or {}))
    probe = probes.tokenizer_probe(program, vocabulary)
    count = failures = 0
    for text in inputs():
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        data = text.encode("utf-8", "replace")
        found = probe.encode(data)
        count += 1
        problem = None if found == expected else f"expected {expected[:30]}, found {found[:30]}"
        if problem is None and vocabulary["model"] == "llama" and not flags:
            wanted = tokenizer.decode(expected, skip_special_tokens=True)
            got = probe.decode(found).decode("utf-8", "replace")
            problem = None if got == wanted else f"decoded: expected {wanted!r}, found {got!r}"
        if problem:
            failures += 1
            if failures <= 10 and not flags:
                print(f"{name}: {text[:200]!r}: {problem}")
    assert probe.close() == 0
    print(f"{name}{json.dumps(flags) if flags else ''}: {count} strings, {failures} differ")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--variants", action="store_true", help="count the differences to tokens with other flags instead")
    arguments = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        pairs = {"Llama 2": sentencepiece_pair(folder, True), "Llama 2 without a leading blank": sentencepiece_pair(folder, False),
                 "Metaspace, first": sentencepiece_pair(folder, True, "first"),
                 "Metaspace, always": sentencepiece_pair(folder, True, "always"),
                 **{pre: bpe_pair(pre) for pre in ("gpt-2", "llama-bpe", "qwen2")}}
        for name, (vocabulary, reference) in pairs.items():
            if arguments.variants:
                for flag in ("lstrip", "rstrip", "normalized", "single_word"):
                    compare(name, vocabulary, reference, arguments.probe, {flag: True})
            else:
                failures += compare(name, vocabulary, reference, arguments.probe)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
