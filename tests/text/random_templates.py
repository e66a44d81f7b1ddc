"""Random templates: operators, filters, tests, methods and statements over values of every type, seeded.

Lazy sequences are made lists at once: Jinja looks at their items later, or never, so that errors come elsewhere.
"""

import random
import re

ATOMS = [
    "0", "1", "-1", "2", "7", "10", "2.5", "-0.5", "1.0", "1e16", "true", "false", "none", "missing", "''", "'a'", "'ab c'", "'Äß東'",
    "' x\\n'", "'1,2'", "'12'", "'a-B_c'", "[]", "[1, 2, 3]", "['b', 'a', 'C']", "[1, 'a', none]", "[[1, 2], [3]]", "(1, 2)", "()",
    "{}", "{'a': 1}", "{'b': [1], 'a': {'c': 'd'}}", "messages", "(range(3) | list)", "ns.x", "v",
    "9223372036854775807", "-9223372036854775808", "18446744073709551616", "-100000000000000000000", "12345678901234567890123", "1e22", "'<b>a</b> &lt;c&gt;  d'",
    "'the quick-brown fox--jumps over'", "0x1F_FFFF_FFFF_FFFF_FFFF",
]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = [
    "abs", "batch(2) | list", "batch(2, 'f') | list", "capitalize", "center(9)", "count", "default('d')", "default('d', true)", "dictsort",
    "dictsort(by='value')", "first", "float", "float(1.5)", "format('x')", "format(1, 2)", "indent", "indent(2, true)", "int", "int(5)",
    "items | list", "join", "join('-')", "last", "length", "list", "lower", "map('upper') | list", "map('string') | list", "map(attribute='role') | list",
    "map('length') | list", "max", "min", "reject('odd') | list", "reject | list", "rejectattr('a') | list", "replace('a', 'b')", "replace('a', 'bb', 1)", "reverse | list",
    "round", "round(1)", "round(1, 'ceil')", "select | list", "select('string') | list", "select('gt', 1) | list", "selectattr('role', 'eq', 'user') | list",
    "slice(2) | list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='role')", "string", "sum", "title", "tojson",
    "tojson(indent=2)", "tojson(sort_keys=true)", "trim", "trim('a')", "truncate(5)", "truncate(3, true, '')", "unique | list", "upper",
    "urlencode", "wordcount", "groupby('role')", "list | length", "map('int') | sum", "select | first", "list | first", "list | join(',')",
    "wordwrap(5)", "wordwrap(3, false)", "wordwrap(7, break_on_hyphens=false)", "wordwrap(4, true, '|')", "striptags", "filesizeformat",
    "filesizeformat(true)",
]
TESTS = [
    "defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "iterable", "sequence",
    "callable", "odd", "even", "divisibleby(3)", "divisibleby 2", "lower", "upper", "sameas none", "in [1, 'a']", "eq 1", "ne 'a'", "lt 3",
    "ge 1", "escaped", "not none", "not string", "not in 'abc'", "filter", "test",
]
POSTFIX = [
    "[0]", "[-1]", "[1:]", "[::-1]", "[:2]", "['a']", ".a", ".role", ".items() | list", ".keys() | list", ".get('a')", ".get('a', 5)", ".upper()",
    ".strip()", ".split()", ".split(',')", ".split('a', 1)", ".startswith('a')", ".endswith('c')", ".replace('a', 'z')", ".title()",
    ".join(['x', 'y'])", ".count('a')", ".find('b')", ".lower()", ".capitalize()", ".isdigit()", ".splitlines()", ".zfill(5)", ".0",
    ".values() | list", ".index(1)", ".format(1, 2)", "[1:2]", "[v]", ".x",
]


def expression(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.15:
        return rng.choice(ATOMS)
    inner = expression(rng, depth - 1)
    if kind < 0.4:
        return f"{inner} {rng.choice(BINARY)} {expression(rng, depth - 1)}"
    if kind < 0.5:
        return f"({inner})"
    if kind < 0.7:
        return f"{inner} | {rng.choice(FILTERS)}"
    if kind < 0.78:
        return f"({inner}) is {rng.choice(TESTS)}"
    if kind < 0.9:
        return f"({inner}){rng.choice(POSTFIX)}"
    if kind < 0.93:
        return f"(not {inner})" if rng.random() < 0.4 else f"{rng.choice('-+')}{inner}"
    if kind < 0.96:
        return f"{inner} if {expression(rng, depth - 1)} else {expression(rng, depth - 1)}"
    if kind < 0.98:
        return f"[{inner}, {expression(rng, depth - 1)}]"
    return "{'k': " + inner + "}"


def blank(rng):
    return rng.choice(["", "", " ", "\n", "  \n  ", "\t", "x", "\n\n y "])


def tag(rng, body):
    return "{%" + rng.choice(["", "", "-", "+"]) + f" {body} " + rng.choice(["", "", "-", "+"]) + "%}"


def output(rng, depth):
    return "{{" + rng.choice(["", "", "-"]) + f" {expression(rng, depth)} " + rng.choice(["", "", "-"]) + "}}"


def statements(rng, depth, in_loop=False):
    out = [blank(rng)]
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if depth == 0 or kind < 0.4:
            out.append(output(rng, 2))
        elif kind < 0.5:
            out.append(tag(rng, f"set {rng.choice(['v', 'w', 'ns.x'])} = {expression(rng, 2)}"))
        elif kind < 0.65:
            out += [tag(rng, f"if {expression(rng, 2)}"), statements(rng, depth - 1, in_loop)]
            if rng.random() < 0.3:
                out += [tag(rng, f"elif {expression(rng, 1)}"), statements(rng, depth - 1, in_loop)]
            if rng.random() < 0.5:
                out += [tag(rng, "else"), statements(rng, depth - 1, in_loop)]
            out.append(tag(rng, "endif"))
        elif kind < 0.8:
            condition = rng.choice(["", "", f" if {expression(rng, 1)}"])
            items = rng.choice([expression(rng, 1), "messages", "range(3)", "[1, 2]", "'ab'"])
            out += [tag(rng, f"for {rng.choice(['v', 'w'])} in {items}{condition}"), statements(rng, depth - 1, True),
                    rng.choice(["", "{{ loop.index }}{{ loop.last }}", "{{ loop.length }}"])]
            if rng.random() < 0.3:
                out += [tag(rng, "else"), statements(rng, depth - 1, in_loop)]
            out.append(tag(rng, "endfor"))
        elif kind < 0.86:
            out += [tag(rng, "set w"), statements(rng, depth - 1), tag(rng, "endset"), "{{ w }}"]
        elif kind < 0.92:
            out += [tag(rng, f"macro m(v, w={expression(rng, 1)})"), statements(rng, depth - 1), tag(rng, "endmacro"),
                    "{{ m(" + expression(rng, 1) + ") }}"]
        elif kind < 0.96 and in_loop:
            out.append(tag(rng, rng.choice(["break", "continue"])))
        else:
            out.append(rng.choice(["{# note #}", "{#- note -#}", "{% raw %}{{ x }}{% endraw %}"]))
        out.append(blank(rng))
    return "".join(out)


LONG = re.compile(r"[0-9A-F_]{11}|\b1e\d\d")


def templates(seed, count):
    rng = random.Random(seed)
    for i in range(count):
        source = "{% set ns = namespace(x='n') %}" + (output(rng, 4) if i % 2 else statements(rng, 3))
        if "**" in source and LONG.search(source):
            source = source.replace("**", "*")  # Python would compute such a power for ever
        yield source
