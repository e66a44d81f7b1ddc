#!/usr/bin/env python3
"""Compares the SentencePiece tokenizer with the `sentencepiece` library: models trained here, string by string. Without
user-defined symbols: those are found as Hugging Face finds them (added_compare.py), which the library does otherwise.

    spm_compare.py PROBE [--time]
    spm_compare.py PROBE --gguf FILE   the vocabulary of a GGUF file (Gemma's, say), its user-defined pieces too: those
                                       must hold blanks or lie apart from them, as Gemma's do
"""

import argparse
import itertools
import os
import struct
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


def encoded(number):
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    """One field of a protobuf message: bytes, an int or a bool, or a float."""
    if isinstance(value, bytes):
        return encoded(number << 3 | 2) + encoded(len(value)) + value
    if isinstance(value, float):
        return encoded(number << 3 | 5) + struct.pack("<f", value)
    return encoded(number << 3) + encoded(int(value))


def model_of(path):
    """The vocabulary of a GGUF file for the probe, and the same as a model of the library."""
    names = ("tokens", "scores", "token_type", "unknown_token_id", "bos_token_id", "eos_token_id")
    tokens, scores, types, unk, bos, eos = probes.gguf_fields(path, *(f"tokenizer.ggml.{name}" for name in names))
    space_prefix, = probes.gguf_fields(path, "tokenizer.ggml.add_space_prefix")
    pieces = bytearray()
    for i, (token, score, kind) in enumerate(zip(tokens, scores, types)):
        # The file's user-defined pieces are as they lie in a text, the library's with its mark for a blank.
        piece = token.replace(" ", "\u2581") if kind == 4 else token
        pieces += field(1, field(1, piece.encode()) + field(2, float(score)) + field(3, 2 if i == unk else kind))
    trainer = (field(3, 2) + field(35, 6 in types) + field(40, unk) + field(41, bos) + field(42, eos) +
               field(45, tokens[unk].encode()) + field(46, tokens[bos].encode()) + field(47, tokens[eos].encode()))
    normalizer = field(1, b"identity") + field(3, space_prefix) + field(4, False) + field(5, True)
    model = sentencepiece.SentencePieceProcessor(model_proto=bytes(pieces) + field(2, trainer) + field(3, normalizer))
    vocabulary = {"model": "llama", "tokens": tokens, "types": types, "scores": scores, "bos": bos, "eos": eos,
                  "unk": unk, "add_space_prefix": space_prefix}
    return model, vocabulary


def inputs(specials=()):
    for text in itertools.chain(strings.fixed(specials), strings.mixed(1, 4000, specials),
                                strings.random_code_points(2, 3000)):
        yield text.encode("utf-8", "replace")
    yield from strings.random_bytes(3, 2000)


def compare(name, model, vocabulary, program, specials=()):
    probe = probes.tokenizer_probe(program, vocabulary)
    count = failures = 0
    for data in inputs(specials):
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


def measure(name, _, vocabulary, program):
    probe = probes.tokenizer_probe(program, vocabulary)
    for label, data in (("mixed text", " ".join(strings.mixed(9, 20000)).encode()), ("1 MiB of a", b"a" * 2**20),
                        ("1 MiB of blanks", b" " * 2**20)):
        print(f"{name}: {label}: {len(data) / probe.encode_seconds(data) / 1e6:.1f} MB/s")
    probe.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--time", action="store_true", help="measure speed instead")
    parser.add_argument("--gguf", metavar="FILE")
    arguments = parser.parse_args()
    act = measure if arguments.time else compare
    if arguments.gguf:
        model, vocabulary = model_of(arguments.gguf)
        found = [token for token, kind in zip(vocabulary["tokens"], vocabulary["types"]) if kind in (3, 4)]
        specials = [token for token in found if "unused" not in token]
        rest = [] if arguments.time else [specials]
        return 1 if act(os.path.basename(arguments.gguf), model, vocabulary, arguments.probe, *rest) else 0
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, options in VARIANTS.items():
            model = train(folder, name, **options)
            failures += act(name, model, vocabulary_of(model, **options), arguments.probe) or 0
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
