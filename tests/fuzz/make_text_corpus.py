#!/usr/bin/env python3
"""Writes the seeds of the tokenizer, vocabulary and template targets from the lists of tests/text.

    make_text_corpus.py
"""

import hashlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "text"))
import chat_cases  # noqa: E402
import random_templates  # noqa: E402
import strings  # noqa: E402


def write(target, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)


KWARGS = [
    {"x": {"㐂": [1, -2.5, True, None, "㐂"], "a": {"b": {}}}, "n": 3}, {"x": ["b", "a", "㐂", 18446744073709551615], "n": "㐂"},
    {"x": "<b>㐂 well-known&eacute;</b>", "tools": [chat_cases.TOOL], "bos_token": "㐂", "enable_thinking": False},
]


def main():
    specials = ["<|im_start|>", "<|im_end|>", "<tool>"]
    texts = ["\n".join(group) for group in (strings.SCRIPTS, strings.SYMBOLS, strings.BLANKS, strings.CODE,
                                            strings.CONTRACTIONS, strings.NUMBERS, strings.CONTROLS, specials)]
    for i, text in enumerate(texts):
        for kind in range(5):
            write("tokenizer", bytes([kind, 3 + i]) + text.encode("utf-8", "replace"))
    for i, data in enumerate(strings.random_bytes(1, 10)):
        write("tokenizer", bytes([i, 7]) + data)
    for source in list(chat_cases.TEMPLATES.values()) + list(random_templates.templates(7, 10)):
        write("template", source.encode())
    for kwargs in KWARGS:  # behind a zero byte: chat_template_kwargs
        for source in ("{{ x }}{{ x | tojson }}", "{% for k, v in x.items() %}{{ k }}{{ v | string | upper }}{% endfor %}",
                       "{{ x | unique | list }}{{ dict(x, **x) }}{{ n * x }}{{ x ~ x }}", chat_cases.TEMPLATES["chatml"]):
            write("template", source.encode() + b"\0" + json.dumps(kwargs, ensure_ascii=False).encode())
    for kind in ("gpt-2", "smollm", "llama-bpe", "qwen2"):
        write("vocabulary", f"{kind}\n1a\n1b\n1ab\n1Ġ\n1Ġa\n3<s>\n4<t>\n5[P]\n1Ã\n1©\n1Ã©\n\na b\nĠ a\nÃ ©\n".encode())
    write("vocabulary", "llama\n2<unk>\n3<s>\n6<0x61>\n1▁\n1a\n1▁a\n5aa\n1aaa\n4<t>\n1a▁b\n".encode())


if __name__ == "__main__":
    main()
