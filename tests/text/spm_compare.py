#!/usr/bin/env python3
"""Compares the SentencePiece tokenizer with the `sentencepiece` library: models trained here, string by string. Without
user-defined symbols: those are found as Hugging Face finds them (added_compare.py), which the library does otherwise.

    spm_compare.py PROBE [--time]
"""

import argparse
import itertools
import os
import tempfile

import probe as probes
import strings

try:
    import sentencepiece
except ImportError:
    probes.skip("no Python package sentencepiece")

VARIANTS = {
    "as Llama 2": {},
    "no prefix, whole sentences as pieces": {"add_dummy_prefix": False, "split_by_whitespace": False},
    "no byte fallback": {"byte_fallback": False},
    "every third piece unused": {"unused": True},
}


def train(folder, name, unused=False, **options):
    corpus = os.path.join(folder, "corpus.txt")
    with open(corpus, "w", encoding="utf-8") as file:
        for text in itertools.chain(strings.fixed(), strings.mixed(5, 3000)):
            line = " ".join(text.replace("\0", "").splitlines())[:1000]
            file.write(line + "\n")
    arguments = {"vocab_size": 1500, "byte_fallback": True, "character_coverage": 0.98, **options}
    prefix = os.path.join(folder, name.replace(" ", "_"))
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=prefix, model_type="bpe", normalization_rule_name="identity",
        remove_extra_whitespaces=False, max_sentence_length=10000, allow_whitespace_only_pieces=True, minloglevel=2,
        num_threads=1, **arguments)
    with open(prefix + ".model", "rb") as file:
        model = file.read()
    return sentencepiece.SentencePieceProcessor(model_proto=with_unused_pieces(model) if unused else model)


def with_unused_pieces(model):
    """The serialized model with type "unused" on every third normal piece of several characters."""
    def varint(pos):
        value = shift = 0
        while True:
            byte = model[pos]
            value, shift, pos = value | (byte & 127) << shift, shift + 7, pos + 1
            if byte < 128:
                return value, pos

    out, pos, count = bytearray(), 0, 0
    while pos < len(model):
        key, body = varint(pos)
        assert key & 7 == 2, "every field at the top is a message"
        size, body = varint(body)
        message = model[body:body + size]
        pos = body + size
        if key >> 3 == 1 and b"\x18" not in message[-2:-1] and message[1] > 4:  # a piece, type normal, 5 bytes and more
            count += 1
            if count % 3 == 0:
                message += b"\x18\x05"
        assert len(message) < 2**14
        length = bytes([len(message)]) if len(message) < 128 else bytes([len(message) & 127 | 128, len(message) >> 7])
        out += bytes([key]) + length + message
    return bytes(out)


def vocabulary_of(model, add_dummy_prefix=True, **_):
    def kind(i):
        if model.is_unknown(i):
            return 2
        if model.is_control(i):
            return 3
        if model.is_byte(i):
            return 6
        if model.is_unused(i):
            return 5
        return 1

    ids = range(model.vocab_size())
    return {"model": "llama", "tokens": [model.id_to_piece(i) for i in ids], "types": [kind(i) for i in ids],
            "scores": [model.get_score(i) for i in ids], "bos": model.bos_id(), "eos": model.eos_id(),
            "unk": model.unk_id(), "add_space_prefix": add_dummy_prefix}


def inputs():
    for text in itertools.chain(strings.fixed(), strings.mixed(1, 4000),
                                strings.random_code_points(2, 3000)):
        yield text.encode("utf-8", "replace")
    yield from strings.random_bytes(3, 2000)


def compare(name, model, options, program):
    probe = probes.tokenizer_probe(program, vocabulary_of(model, **options))
    count = failures = 0
    for data in inputs():
        text = data.decode("utf-8", "replace")
        if "\u2581" in text:
            continue  # sentencepiece gives it back as a space: nothing to compare a round trip with
        expected = model.encode(text)
        found = probe.encode(data, special=False)
        count += 1
        if found != expected:
            failures += 1
            if failures <= 10:
                print(f"{name}: {text[:200]!r}: expected {expected[:30]}, found {found[:30]}")
        elif model.unk_id() not in found:
            decoded = probe.decode(found).decode("utf-8", "replace")
            if decoded != model.decode(expected):
                failures += 1
                print(f"{name}: decode of {text[:200]!r}: expected {model.decode(expected)!r}, found {decoded!r}")
    assert probe.close() == 0
    print(f"{name}: {count} strings, {failures} differ")
    return failures


def measure(name, model, options, program):
    probe = probes.tokenizer_probe(program, vocabulary_of(model, **options))
    for label, data in (("mixed text", " ".join(strings.mixed(9, 20000)).encode()), ("1 MiB of a", b"a" * 2**20),
                        ("1 MiB of blanks", b" " * 2**20)):
        print(f"{name}: {label}: {len(data) / probe.encode_seconds(data) / 1e6:.1f} MB/s")
    probe.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--time", action="store_true", help="measure speed instead")
    arguments = parser.parse_args()
    act = measure if arguments.time else compare
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, options in VARIANTS.items():
            failures += act(name, train(folder, name, **options), options, arguments.probe) or 0
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
