#!/usr/bin/env python3
"""Compares the chat template engine with Jinja2 as Hugging Face sets it up: every template over every message set.

Where Jinja fails, ours must fail. Where it renders, the texts must be equal, and every piece that claims to come from
the template must be free of what the messages brought.

    jinja_compare.py PROBE [--templates DIR]

--templates: also every *.jinja of that folder, over conversations with tools. llama-cpp-python's source package has those
of most families: pip download llama-cpp-python --no-deps --no-binary :all:, then vendor/llama.cpp/models/templates.
"""

import argparse
import copy
import datetime
import json
import os
import pathlib

import chat_cases
import probe as probes
import random_templates

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    probes.skip("no Python package jinja2")

# Python prints addresses, types and lazy objects; a template that does so fails here, by name.
UNCOMPARED = (" object at 0x", "<function", "<class", "<built-in", "<Namespace", "<Macro", "dict_items(", "dict_keys(", "dict_values(", "range(", "<bound", "Markup(")
# A constant such as (1)[2:] is undefined in Jinja, where the same slice of a variable fails; here both fail.
FOLDED = "object has no slices"
STRINGS = {"bos_token": "<s>", "eos_token": "</s>"}


class Generation(jinja2.ext.Extension):
    """The block that marks an assistant's turn."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    return made


def reference(made, source, context):
    """The text, or None where Jinja fails."""
    try:
        return made.from_string(source).render(**copy.deepcopy(context), **STRINGS)
    except Exception:  # whatever a template can provoke
        return None


def strings_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def compare_one(made, probe, source, context):
    """What Jinja rendered (None: it failed), and the problem, if there is one."""
    expected = reference(made, source, context)
    answer = probe.ask({"template": source, "context": context, "strings": STRINGS})
    found = "".join(text for text, _ in answer["pieces"]) if "pieces" in answer else None
    if found != expected:
        return expected, f"expected {expected!r}, found {found!r} {answer.get('message', '')}"
    if found is not None:
        contents = [text for message in context["messages"] for text in strings_in(message.get("content"))]
        marked = [text for text, from_template in answer["pieces"] if from_template]
        leaks = [c for c in contents if "<|" in c and c not in source and any(c in piece for piece in marked)]
        if leaks:
            return expected, f"data marked as template text: {leaks}"
    return expected, ""


def compare_cases(templates, probe):
    made = environment()
    count = failures = 0
    rendered, shown = set(), set()
    for name, source in templates.items():
        for set_name, case in chat_cases.MESSAGE_SETS.items():
            for add_generation_prompt in (False, True):
                context = {"tools": None, **case, "add_generation_prompt": add_generation_prompt}
                expected, problem = compare_one(made, probe, source, context)
                count += 1
                if expected is not None:
                    rendered.add(name)
                if problem:
                    failures += 1
                    if name not in shown and len(shown) < 40:
                        print(f"{name} / {set_name} / {add_generation_prompt}: {problem[:1500]}")
                    shown.add(name)
    never = [name for name in templates if name not in rendered and "error" not in name]
    print(f"{count} renderings, {failures} differ; fail in Jinja on every set: {never}")
    return failures


# Jinja marks a string by |safe and escapes what is joined to it as HTML; ours leaves it as it is.
HTML = ("meetkai-functionary-medium-v3.1",)


def compare_shipped(folder, probe):
    """Templates of real models."""
    made = environment()
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    failures = count = as_html = 0
    never, by_text = [], []
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        source = path.read_text()
        rendered = {"objects": 0, "texts": 0}
        for name, case in chat_cases.tool_conversations().items():
            expected, problem = compare_one(made, probe, source, case)
            count += 1
            rendered["texts" if name.endswith("as text") else "objects"] += expected is not None
            if problem and path.stem in HTML:
                as_html += 1
            elif problem:
                failures += 1
                print(f"{path.name} / {name}: {problem[:1500]}")
        if rendered["objects"] == 0:
            (by_text if rendered["texts"] else never).append(path.stem)
    print(f"{count} renderings of shipped templates, {failures} differ, {as_html} in HTML's escapes alone; fail in Jinja on every conversation: {never}; "
          f"want arguments as text: {by_text}")
    return failures


def compare_random(count, seed, probe):
    made = environment()
    failures = rendered = skipped = 0
    for source in random_templates.templates(seed, count):
        context = chat_cases.MESSAGE_SETS["system and user"]
        expected, problem = compare_one(made, probe, source, context)
        rendered += expected is not None
        if problem and (any(mark in (expected or "") for mark in UNCOMPARED) or FOLDED in problem):
            skipped += 1
        elif problem:
            failures += 1
            if failures <= 25:
                print(f"random: {source!r}: {problem[:600]}")
    print(f"{count} random templates (seed {seed}), {rendered} render, {skipped} beyond comparison, {failures} differ")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--random", type=int, default=6000, help="how many random templates")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--templates", help="a folder of templates of real models")
    arguments = parser.parse_args()
    templates = dict(chat_cases.TEMPLATES)
    for variable in ("LLMRT_TEST_MODEL", "LLMRT_TEST_MODEL_QWEN"):
        if not os.environ.get(variable):
            print(f"{variable} is not set: its template is not compared")
            continue
        try:
            templates[variable] = probes.gguf_fields(os.environ[variable], "tokenizer.chat_template")[0]
        except ImportError:
            print(f"no Python package gguf: the template of {variable} is not compared")
    probe = probes.Probe(arguments.probe, "template")
    failures = compare_cases(templates, probe) + compare_random(arguments.random, arguments.seed, probe)
    if arguments.templates:
        failures += compare_shipped(arguments.templates, probe)
    assert probe.close() == 0
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
