#!/usr/bin/env python3
"""Writes script_ranges.cpp: the scripts of Unicode's characters, from the PyPI package fonttools.

    python3 -m venv /tmp/fonttools && /tmp/fonttools/bin/pip install fonttools==4.68.0
    /tmp/fonttools/bin/python core/grammar/make_script_ranges.py > core/grammar/script_ranges.cpp
"""
import re

import fontTools
from fontTools.unicodedata import Scripts


def lines(items, width=116):
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > width:
            yield line
            line = "   "
        line += " " + item
    yield line


def main():
    source = open(Scripts.__file__).read()
    unicode_version = re.search(r"Scripts-([0-9.]+)\.txt", source)[1]
    codes = sorted(Scripts.NAMES)
    names = [f'{{"{code}", "{Scripts.NAMES[code]}"}},' for code in codes]
    runs = [f"{{{first:#x}, {codes.index(code)}}}," for first, code in zip(Scripts.RANGES, Scripts.VALUES)]
    print("// Made by make_script_ranges.py; do not edit.")
    print(f"// Unicode {unicode_version}, Scripts.txt, as in the PyPI package fonttools {fontTools.version}.")
    print("// (c) Unicode, Inc.; https://www.unicode.org/terms_of_use.html")
    print('#include "core/grammar/script_ranges.h"\n\nnamespace llmrt {\nnamespace {\n')
    print("// clang-format off")
    print("constexpr ScriptName kNames[] = {")
    print("\n".join(lines(names)))
    print("};\n\n// Each as far as the next one.\nconstexpr ScriptRun kRuns[] = {")
    print("\n".join(lines(runs)))
    print("};\n// clang-format on\n\n}  // namespace\n")
    print("std::span<const ScriptName> script_names() {\n  return kNames;\n}\n")
    print("std::span<const ScriptRun> script_runs() {\n  return kRuns;\n}\n\n}  // namespace llmrt")


main()
