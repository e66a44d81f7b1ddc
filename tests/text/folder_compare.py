#!/usr/bin/env python3
"""Compares the tokenizer.json of a Hugging Face folder, as llmrt reads it, with Hugging Face's `tokenizers`, string by
string; where the package `transformers` is there, with what its AutoTokenizer makes of the folder too.

    folder_compare.py PROBE [FOLDER...]

Without folders small ones are written here, with the steps that the models' files have: SentencePiece's BPE as Llama 2,
Gemma and Mistral have it, and byte-level BPE with each pre-tokenizer that core/text knows. A folder needs no weights.
"""

import argparse
import itertools
import json
import os
import tempfile

import probe as probes
import strings

try:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError:
    probes.skip("no Python package tokenizers")

import hf_compare

SPECIALS = ["<unk>", "<s>", "</s>", "<|turn|>", "<tool>"]  # the last one is text
MARK = "\u2581"


def bytes_of_pieces():
    return [f"<0x{byte:02X}>" for byte in range(256)]


def pieces(kind):
    """SentencePiece's BPE: pieces learnt here, merges as the trainer has them."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    strip = [decoders.Strip(" ", 1, 0)]
    if kind == "llama2":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    elif kind == "gemma":
        tokenizer.normalizer, strip = normalizers.Replace(" ", MARK), []
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, kind, split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=SPECIALS[:3] + bytes_of_pieces(), show_progress=False,
                                  limit_alphabet=300, max_token_length=16)
    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always")
    learnt.train_from_iterator(itertools.chain(strings.fixed(), strings.mixed(5, 2000)), trainer)
    model = json.loads(learnt.to_str())["model"]
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in model["merges"]]
    # Runs of spaces as Gemma has them: every split of each.
    vocab = dict(model["vocab"])
    for length in range(2, 9):
        vocab.setdefault(MARK * length, len(vocab))
    runs = [(MARK * a, MARK * b) for a in range(7, 0, -1) for b in range(8 - a, 0, -1)]
    merges = runs + [merge for merge in merges if merge not in runs]
    tokenizer.model = models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return tokenizer


def byte_level(pre):
    vocabulary = hf_compare.trained(pre, 1500)
    for field in ("tokens", "types"):
        vocabulary[field] = vocabulary[field][:-3]  # its own added tokens
    tokenizer = hf_compare.hugging_face(vocabulary)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def write(folder, tokenizer):
    for token in SPECIALS:
        tokenizer.add_tokens([AddedToken(token, special=token != "<tool>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    ends = [tokenizer.token_to_id(token) for token in ("</s>", "<|turn|>", "<unk>")]
    texts = {
        "config.json": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1,
                        "num_attention_heads": 1, "intermediate_size": 8, "rms_norm_eps": 1e-6, "max_position_embeddings": 64,
                        "vocab_size": tokenizer.get_vocab_size() + 3, "bos_token_id": tokenizer.token_to_id("<s>")},
        "generation_config.json": {"eos_token_id": ends},
        "tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                                  "tokenizer_class": "PreTrainedTokenizerFast"}}
    for name, tree in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(tree, file)


def references(folder):
    """Encoders by name, each from a text to ids with bos."""
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    found = {"tokenizers": lambda text: tokenizer.encode(text).ids}
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return tokenizer, found
    automatic = AutoTokenizer.from_pretrained(folder)
    found["AutoTokenizer"] = lambda text: automatic(text, add_special_tokens=True)["input_ids"]
    return tokenizer, found


def compare(name, folder, program):
    tokenizer, encoders = references(folder)
    probe = probes.Probe(program, "folder", folder)
    count = failures = 0
    texts = itertools.chain(strings.fixed(SPECIALS), strings.mixed(1, 1500, SPECIALS), strings.random_code_points(2, 700))
    for text in texts:
        text = text.encode("utf-8", "replace").decode()
        found = probe.encode(text.encode(), bos=True)
        problem = None
        for encoder, encode in encoders.items():
            if encode(text) != found:
                problem = f"{encoder}: expected {encode(text)[:30]}, found {found[:30]}"
        if problem is None and MARK not in text and not any(special in text for special in SPECIALS):
            wanted, got = tokenizer.decode(found), probe.decode(found).decode("utf-8", "replace")
            if wanted != got:
                problem = f"decoded: expected {wanted!r}, found {got!r}"
        count += 1
        if problem:
            failures += 1
            if failures <= 10:
                print(f"{name}: {text[:200]!r}: {problem}")
    assert probe.close() == 0
    print(f"{name}: {count} strings, {' and '.join(encoders)}: {failures} differ")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probe")
    parser.add_argument("folders", nargs="*")
    arguments = parser.parse_args()
    if arguments.folders:
        return 1 if sum(compare(folder, folder, arguments.probe) for folder in arguments.folders) else 0
    failures = 0
    for kind in ["llama2", "gemma", "first", "always", "never", *hf_compare.PRE_TOKENIZERS]:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = byte_level(kind) if kind in hf_compare.PRE_TOKENIZERS else pieces(kind)
            if kind == "never":
                tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
            write(folder, tokenizer)
            failures += compare(kind, folder, arguments.probe)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
