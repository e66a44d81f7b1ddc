#!/usr/bin/env python3
"""Holds the schema compiler against JSON-Schema-Test-Suite, as it comes with the sdist of jsonschema 4.26.0 on PyPI.

    schema_suite.py PROBE [--cache DIR] [--verbose] [--llguidance]

Every group compiles or is refused. Where it compiles, each valid instance is accepted in our spelling (for some order of
keys; integers without a fraction, shortest escapes; without and with white space), and no invalid instance is in any
spelling. The numbers of compiled and refused groups are pinned: a change of either is looked at. Skips itself (exit code
4) where the suite cannot be had.

With --llguidance the Python package of that name is asked the same (a valid instance counts as accepted where any
spelling is), and a table of both is printed.
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tarfile
from decimal import Decimal

VERSION = "4.26.0"
DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
# [groups compiled, groups refused] by draft and part.
PINNED = {
    "draft7 main": [236, 18], "draft7 optional": [34, 4], "draft7 format": [14, 5],
    "draft2019-09 main": [326, 35], "draft2019-09 optional": [41, 5], "draft2019-09 format": [16, 5],
    "draft2020-12 main": [323, 45], "draft2020-12 optional": [41, 7], "draft2020-12 format": [17, 5],
}
# What we leave out on purpose, by a part of the case's name: seconds that leap in another zone, names in punycode (which
# only decoding can tell from nonsense), and what strings hold beyond their characters (an annotation since 2019-09).
EXCUSED_REJECTED = ("leap second", "punycoded IDN hostname")
EXCUSED_ACCEPTED = ("draft7/optional/content",)
ORDERS_MAX = 720
# Tests that ask for what we do not do, each with the reason.
# Formats are annotations in format.json; we enforce them, as optional/format expects.
ANNOTATIONS = "annotation by default"
# contentMediaType and contentEncoding are annotations in every draft; draft 7 lets them be enforced.
CONTENT = "optional/content:"
# Labels of punycode are no regular language; all are left out.
PUNYCODE = "a valid punycoded IDN hostname"
# A leap second is written in UTC, its one spelling here.
LEAP_SECONDS = "leap second, "


def is_left_out(where, test):
    if test["valid"]:
        is_local_leap_second = LEAP_SECONDS in test["description"] and "offset" in test["description"]
        return ANNOTATIONS in test["description"] or test["description"] == PUNYCODE or is_local_leap_second
    return CONTENT in where


def suite(cache):
    root = cache / f"jsonschema-{VERSION}" / "json" / "tests"
    if not root.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", f"jsonschema=={VERSION}", "--no-binary", ":all:",
                   "--no-deps", "-q", "-d", str(cache)]
        if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300).returncode != 0:
            print("SKIP: the suite is not there and pip cannot download it")
            sys.exit(4)
        with tarfile.open(cache / f"jsonschema-{VERSION}.tar.gz") as archive:
            archive.extractall(cache, filter="data")
    return root


ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def string_text(text):
    return '"' + "".join(ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def escaped_text(text):
    """Every character as \\uXXXX."""
    units = text.encode("utf-16-be", "surrogatepass")
    return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)) + '"'


def number_text(number):
    if isinstance(number, Decimal):
        text = f"{number:f}"
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        return "0" if text in ("-0", "") else text
    return str(number)


def spell(value, comma=",", colon=":", string=string_text, number=number_text, edge=""):
    again = lambda v: spell(v, comma, colon, string, number, edge)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, Decimal)):
        return number(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, list):
        return "[" + edge + comma.join(again(v) for v in value) + edge + "]" if value else "[]"
    pairs = comma.join(string(k) + colon + again(v) for k, v in value.items())
    return "{" + edge + pairs + edge + "}" if value else "{}"


def orders(value):
    """The value with its keys in every order, at most ORDERS_MAX of them."""
    if isinstance(value, list):
        for parts in itertools.product(*[list(itertools.islice(orders(v), 24)) for v in value]):
            yield list(parts)
    elif isinstance(value, dict):
        for keys in itertools.permutations(value):
            for parts in itertools.product(*[list(itertools.islice(orders(value[k]), 24)) for k in keys]):
                yield dict(zip(keys, parts))
    else:
        yield value


def with_fraction(number):
    return number_text(number) + ".0" if "." not in number_text(number) else number_text(number) + "0"


def with_exponent(number):
    return number_text(number) + "e0"


def valid_spellings(value):
    """Pairs of a compact and a spaced text; one pair must be accepted as a whole."""
    for one in itertools.islice(orders(value), ORDERS_MAX):
        yield spell(one), spell(one, ", ", ": "), spell(one, ",\n  ", ": ", edge="\n")


def invalid_spellings(value, text):
    for one in itertools.islice(orders(value), ORDERS_MAX):
        yield spell(one)
        yield spell(one, ", ", ": ")
    yield text
    yield spell(value, ",\n  ", ": ", edge="\n")
    yield spell(value, string=escaped_text)
    yield spell(value, number=with_fraction)
    yield spell(value, number=with_exponent)


class Probe:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, schema_text, instances):
        self.process.stdin.write('{"schema": %s, "instances": %s}\n' % (schema_text, json.dumps(instances)))
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Llguidance:
    """The same questions to llguidance, byte by byte."""

    def __init__(self):
        import llguidance

        self.matcher_class = llguidance.LLMatcher
        self.tokenizer = llguidance.LLTokenizer("byte")

    def ask(self, schema_text, instances):
        try:
            grammar = self.matcher_class.grammar_from_json_schema(schema_text, defaults={"whitespace_flexible": True})
            matcher = self.matcher_class(self.tokenizer, grammar, log_level=0)
        except Exception as error:
            return {"compiled": False, "message": str(error)}
        if matcher.is_error():
            return {"compiled": False, "message": matcher.get_error()}
        return {"compiled": True, "accepted": [self.accepts(matcher, text) for text in instances]}

    @staticmethod
    def accepts(matcher, text):
        matcher.reset()
        tokens = list(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


class Table:
    """What an implementation made of the suite, by draft and part."""

    COLUMNS = ("groups compiled", "refused", "valid rejected", "invalid accepted")

    def __init__(self):
        self.rows = {}

    def add(self, part, column, count=1):
        self.rows.setdefault(part, dict.fromkeys(self.COLUMNS, 0))[column] += count

    def print(self, name):
        print(f"\n{name:24}" + "".join(f"{column:>18}" for column in self.COLUMNS))
        total = {column: sum(row[column] for row in self.rows.values()) for column in self.COLUMNS}
        for part, row in [*self.rows.items(), ("all", total)]:
            print(f"{part:24}" + "".join(f"{row[column]:18}" for column in self.COLUMNS))


def encodable(text):
    try:
        text.encode()
        return True
    except UnicodeEncodeError:
        return False




def schema_text(schema):
    """JSON with numbers as the suite writes them."""
    return spell(schema, string=lambda s: json.dumps(s), number=lambda n: str(n))


def questions(group, where):
    """Pairs of a test and the spellings of its instance, each a tuple of texts."""
    for test in group["tests"]:
        if is_left_out(where, test):
            continue
        value = test["data"]
        if test["valid"]:
            forms = list(valid_spellings(value))
        else:
            forms = [(text,) for text in dict.fromkeys(invalid_spellings(value, schema_text(value)))]
        forms = [form for form in forms if all(map(encodable, form))]
        if forms:
            yield test, forms


def check_group(probe, schema, tests, problems, refusals, where):
    answer = probe.ask(schema, [text for _, forms in tests for form in forms for text in form])
    if not answer["compiled"]:
        refusals.append((where, answer["message"]))
        if answer["code"] != "unsupported_schema":
            problems.append(f"{where}: refused as {answer['code']}: {answer['message']}")
        return False
    accepted = iter(answer["accepted"])
    for test, forms in tests:
        marks = [[next(accepted) for _ in form] for form in forms]
        is_excused = any(name in test["description"] for name in EXCUSED_REJECTED)
        if test["valid"] and not is_excused and not any(all(form) for form in marks):
            problems.append(f"{where}: {test['description']}: valid but rejected: {forms[0][0]}")
        if not test["valid"] and not where.startswith(EXCUSED_ACCEPTED):
            wrong = [form[0] for form, mark in zip(forms, marks) if mark[0]]
            if wrong:
                problems.append(f"{where}: {test['description']}: invalid but accepted: {wrong[0]}")
    return True


def compare_group(table, part, asked, schema, tests, where, verbose):
    """Each instance once, in the table; what is valid counts as accepted in any spelling."""
    answer = asked.ask(schema, [text for _, forms in tests for form in forms for text in form])
    table.add(part, "groups compiled" if answer["compiled"] else "refused")
    if not answer["compiled"]:
        return
    accepted = iter(answer["accepted"])
    for test, forms in tests:
        is_accepted = any([next(accepted) for form in forms for _ in form])
        if is_accepted != test["valid"]:
            table.add(part, "valid rejected" if test["valid"] else "invalid accepted")
            if verbose:
                print(f"{type(asked).__name__}: {where}: {test['description']}: {test['valid']}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache/llmrt/schema-suite")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--llguidance", action="store_true")
    args = parser.parse_args()
    root = suite(args.cache)
    probe = Probe(args.probe)
    problems, refusals, counts = [], [], {}
    others = {}
    if args.llguidance:
        try:
            others = {"llmrt": (probe, Table()), "llguidance": (Llguidance(), Table())}
        except ImportError:
            print("SKIP: the comparison: no Python package llguidance")
    for draft, dialect in DRAFTS.items():
        for part, folder in (("main", ""), ("optional", "optional"), ("format", "optional/format")):
            count = counts.setdefault(f"{draft} {part}", [0, 0])
            for path in sorted((root / draft / folder).glob("*.json")):
                if args.only not in f"{draft}/{folder}/{path.name}":
                    continue
                for group in json.loads(path.read_text(), parse_float=Decimal):
                    where = f"{draft}/{folder}/{path.stem}: {group['description']}".replace("//", "/")
                    schema = group["schema"]
                    if isinstance(schema, dict) and "$schema" not in schema:
                        schema = {"$schema": dialect, **schema}
                    tests, text = list(questions(group, where)), schema_text(schema)
                    compiled = check_group(probe, text, tests, problems, refusals, where)
                    count[0 if compiled else 1] += 1
                    for asked, table in others.values():
                        compare_group(table, f"{draft} {part}", asked, text, tests, where, args.verbose)
    if args.verbose:
        for where, message in refusals:
            print(f"refused: {where}: {message}")
    for problem in problems:
        print("WRONG:", problem)
    for name, (compiled, refused) in counts.items():
        print(f"{name:24} compiled {compiled:4} refused {refused:4}")
    for name, (_, table) in others.items():
        table.print(name)
    if not args.only and counts != PINNED:
        print("counts differ from the pinned ones:", json.dumps(PINNED))
        print("now:", json.dumps(counts))
        return 1
    print(f"{len(problems)} wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
