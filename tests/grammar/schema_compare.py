#!/usr/bin/env python3
"""Holds the schema compiler against the Python package jsonschema on random schemas: keywords of every kind beside and
inside each other, over small instances that meet them often.

    schema_compare.py PROBE [--seed N] [--schemas N] [--verbose]

A schema compiles or is refused; where it compiles, every valid instance is accepted for some order of its keys, and no
invalid one for any, nor one with a key twice. What random walks along the grammar write is valid, and none is stuck. Skips itself (exit code 4) where jsonschema is missing.
"""
import argparse
import collections
import itertools
import json
import random
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("SKIP: no Python package jsonschema")
    sys.exit(4)

DRAFTS = {
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
COMPILED_SHARE_MIN = 0.75
SCALARS = [None, True, False, 0, 1, 2, -1, 1.5, "", "a", "ab", "b", 'q"\n']
NAMES = ["a", "b", "ab", "x"]


class Maker:
    def __init__(self, rng, draft):
        self.rng, self.is_old = rng, "draft-07" in draft
        self.is_new = "2020" in draft
        self.has_refs = True

    def literal(self):
        kind = self.rng.random()
        if kind < 0.8:
            return self.rng.choice(SCALARS)
        if kind < 0.9:
            return [self.rng.choice(SCALARS) for _ in range(self.rng.randrange(3))]
        return {name: self.rng.choice(SCALARS) for name in self.rng.sample(NAMES, self.rng.randrange(3))}

    def schema(self, depth):
        if depth == 0 or self.rng.random() < 0.1:
            return self.rng.choice([True, False, {}, {"type": self.rng.choice(["string", "integer", "number", "object"])},
                                    {"const": self.literal()}, {"enum": [self.literal() for _ in range(3)]}])
        out = {}
        for _ in range(self.rng.choice([1, 1, 2, 2, 3, 4])):
            name = self.rng.choice(self.KEYWORDS)
            getattr(self, "add_" + name)(out, depth - 1)
        return out

    KEYWORDS = ["type", "type", "enum", "string", "string", "number", "number", "properties", "properties", "properties",
                "patterns", "names", "required", "counts", "items", "items", "item_counts", "contains", "unique", "all_of",
                "any_of", "any_of", "one_of", "not", "condition", "dependent", "unevaluated", "ref"]

    def add_type(self, out, depth):
        types = ["null", "boolean", "integer", "number", "string", "array", "object"]
        out["type"] = self.rng.sample(types, self.rng.randrange(1, 4)) if self.rng.random() < 0.4 else self.rng.choice(types)

    def add_enum(self, out, depth):
        out["enum"] = [self.literal() for _ in range(self.rng.randrange(1, 5))]

    def add_string(self, out, depth):
        out[self.rng.choice(["minLength", "maxLength"])] = self.rng.randrange(3)
        if self.rng.random() < 0.5:
            out["pattern"] = self.rng.choice(["a", "^a", "b$", "^[ab]*$", "^$", '"'])

    def add_number(self, out, depth):
        name = self.rng.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
        out[name] = self.rng.choice([1, 2, 0.5] if name == "multipleOf" else [0, 1, 1.5, -1])

    def add_properties(self, out, depth):
        names = self.rng.sample(NAMES, self.rng.randrange(1, 4))
        out["properties"] = {name: self.schema(depth) for name in names}
        if self.rng.random() < 0.4:
            out["additionalProperties"] = self.schema(depth)
        if self.rng.random() < 0.4:
            out["required"] = self.rng.sample(NAMES, self.rng.randrange(3))

    def add_patterns(self, out, depth):
        patterns = self.rng.sample(["a", "^x", "b$", "^a$"], self.rng.randrange(1, 3))
        out["patternProperties"] = {pattern: self.schema(depth) for pattern in patterns}

    def add_names(self, out, depth):
        out["propertyNames"] = self.schema(min(depth, 1))

    def add_required(self, out, depth):
        out["required"] = self.rng.sample(NAMES, self.rng.randrange(3))

    def add_counts(self, out, depth):
        out[self.rng.choice(["minProperties", "maxProperties"])] = self.rng.randrange(3)

    def add_items(self, out, depth):
        prefix = [self.schema(depth) for _ in range(self.rng.randrange(1, 3))]
        use_prefix = self.rng.random() < 0.5
        if self.is_new:
            if use_prefix:
                out["prefixItems"] = prefix
            if not use_prefix or self.rng.random() < 0.5:
                out["items"] = self.schema(depth)
        else:
            out["items"] = prefix if use_prefix else self.schema(depth)
            if self.rng.random() < 0.5:
                out["additionalItems"] = self.schema(depth)

    def add_item_counts(self, out, depth):
        out[self.rng.choice(["minItems", "maxItems"])] = self.rng.randrange(4)

    def add_contains(self, out, depth):
        out["contains"] = self.schema(depth)
        if not self.is_old and self.rng.random() < 0.5:
            out[self.rng.choice(["minContains", "maxContains"])] = self.rng.randrange(3)

    def add_unique(self, out, depth):
        out["uniqueItems"] = True
        kind = self.rng.random()
        if kind < 0.4:
            out["items"] = {"enum": self.rng.sample(SCALARS, 3)}
        elif kind < 0.5:
            out["items"] = {"enum": SCALARS}
        elif kind < 0.9:
            out["items"] = self.schema(min(depth, 1))
        if self.rng.random() < 0.3:
            out["minItems"] = self.rng.randrange(4)

    def add_all_of(self, out, depth):
        out["allOf"] = [self.schema(depth) for _ in range(2)]

    def add_any_of(self, out, depth):
        out["anyOf"] = [self.schema(depth) for _ in range(self.rng.randrange(1, 4))]

    def add_one_of(self, out, depth):
        out["oneOf"] = [self.schema(depth) for _ in range(self.rng.randrange(1, 4))]

    def add_not(self, out, depth):
        out["not"] = self.schema(depth)

    def add_condition(self, out, depth):
        out["if"] = self.schema(depth)
        for name in self.rng.sample(["then", "else"], self.rng.randrange(1, 3)):
            out[name] = self.schema(depth)

    def add_dependent(self, out, depth):
        name, other = self.rng.sample(NAMES, 2)
        if self.rng.random() < 0.5:
            out["dependencies" if self.is_old else "dependentRequired"] = {name: [other]}
        else:
            out["dependencies" if self.is_old else "dependentSchemas"] = {name: self.schema(depth)}

    def add_unevaluated(self, out, depth):
        if self.is_new:  # of 2019-09 jsonschema has its own idea of what `contains` and additionalProperties look at
            out[self.rng.choice(["unevaluatedItems", "unevaluatedProperties"])] = self.rng.choice([False, self.schema(depth)])

    def add_ref(self, out, depth):
        out["$ref"] = self.rng.choice(["#/$defs/one", "#/$defs/two", "#/$defs/tree"] if self.has_refs else ["#/$defs/tree"])


def instances(rng):
    yield from SCALARS
    yield from ([], {}, [[]], [{}], [1, 1], [0, 0], [True, 1], ["a", "b"], ["b", "a"], [2], [1, 2, 3])
    for _ in range(60):
        yield [rng.choice(SCALARS + [[], {}]) for _ in range(rng.randrange(1, 4))]
    for _ in range(30):
        some = [rng.choice(SCALARS + [[], {}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, [[1]]]) for _ in range(2)]
        yield [rng.choice(some) for _ in range(rng.randrange(2, 4))]
    for _ in range(120):
        names = rng.sample(NAMES, rng.randrange(1, 4))
        yield {name: rng.choice(SCALARS + [[], {}, [1], {"a": 1}, {"a": {"a": "b"}}]) for name in names}


ESCAPES = {'"': '\\"', "\n": "\\n"}


def texts(value):
    """The value in our spelling, for every order of keys."""
    if isinstance(value, str):
        return ['"' + "".join(ESCAPES.get(c, c) for c in value) + '"']
    if isinstance(value, list):
        return ["[" + ",".join(parts) + "]" for parts in itertools.product(*map(texts, value))]
    if isinstance(value, dict):
        return ["{" + ",".join(parts) + "}" for order in itertools.permutations(value)
                for parts in itertools.product(*[[texts(k)[0] + ":" + t for t in texts(value[k])] for k in order])]
    return [json.dumps(value)]


# No schema accepts them: a key stands twice.
TWICE = ['{"a":1,"a":1}', '{"a":1,"b":1,"a":2}', '{"x":{},"x":[]}', '[{"ab":1,"ab":1}]', '{"a":{"x":1,"x":1}}']


def has_key_twice(text):
    def collect(pairs):
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            raise KeyError
        return dict(pairs)
    try:
        json.loads(text, object_pairs_hook=collect)
    except KeyError:
        return True
    return False


def compare(probe, rng, draft, validator_class, walks, refusals):
    maker = Maker(rng, draft)
    schema = {"$schema": draft, "allOf": [maker.schema(3)]}
    maker.has_refs = False  # no references without end
    schema |= {"$defs": {"one": maker.schema(1), "two": maker.schema(1),
                        "tree": {"properties": {"a": {"$ref": "#/$defs/tree"}}, "type": ["object", "string"]}}}
    values = list(instances(rng))
    spelled = [texts(value) for value in values]
    probe.stdin.write(json.dumps({"schema": schema, "walks": walks,
                                  "instances": TWICE + [t for each in spelled for t in each]}) + "\n")
    probe.stdin.flush()
    answer = json.loads(probe.stdout.readline())
    if not answer["compiled"]:
        if answer["code"] not in ("unsupported_schema", "grammar_too_complex"):
            return f"{answer['code']}: {answer['message']}: {json.dumps(schema)}"
        refusals[answer["message"].split(": ", 2)[-1]] += 1
        return None
    validator = validator_class(schema)
    marks = iter(answer["accepted"])
    for text in TWICE:
        if next(marks):
            return f"a key twice: {text}: {json.dumps(schema)}"
    if answer["stuck"]:
        return f"a walk is stuck: {answer['stuck'][0]}: {json.dumps(schema)}"
    for text in answer["written"]:
        if re.search("[0-9.]{15}", text):  # more than a float holds
            continue
        try:
            if has_key_twice(text) or not validator.is_valid(json.loads(text)):
                return f"invalid but written: {text}: {json.dumps(schema)}"
        except TypeError:
            continue
    for value, each in zip(values, spelled):
        accepted = [next(marks) for _ in each]
        try:
            valid = validator.is_valid(value)
        except TypeError:  # jsonschema stumbles over additionalItems beside a boolean
            continue
        if valid != any(accepted):
            return f"{'valid but rejected' if valid else 'invalid but accepted'}: {each[0]}: {json.dumps(schema)}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--walks", type=int, default=6)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    probe = subprocess.Popen([args.probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    refusals, problems = collections.Counter(), []
    for i in range(args.schemas):
        draft = list(DRAFTS)[i % 3]
        problem = compare(probe, random.Random(args.seed * 1_000_003 + i), draft, DRAFTS[draft], args.walks, refusals)
        if problem:
            problems.append(f"seed {args.seed} schema {i}: {problem}")
    for problem in problems:
        print("WRONG:", problem)
    if args.verbose:
        for reason, count in refusals.most_common():
            print(f"refused {count}: {reason}")
    num_refused = sum(refusals.values())
    print(f"{args.schemas} schemas, {num_refused} refused, {len(problems)} wrong")
    return 1 if problems or num_refused > (1 - COMPILED_SHARE_MIN) * args.schemas else 0


if __name__ == "__main__":
    sys.exit(main())
