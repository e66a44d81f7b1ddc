#!/usr/bin/env python3
"""Writes random schemas of hypothesis-jsonschema, a line each, none twice.

    generate_schemas.py COUNT SEED

Needs hypothesis-jsonschema 0.9.13, and hypothesis 6: what has changed its name since is given its old one.
"""
import json
import sys

import hypothesis.provisional
import hypothesis.strategies as strategies
from hypothesis import HealthCheck, Phase, given, seed, settings

lists = strategies.lists
strategies.lists = lambda elements, min_size=0, max_size=None, **rest: lists(
    elements, min_size=min_size, max_size=max_size, **rest)
hypothesis.provisional.ip4_addr_strings = lambda: strategies.ip_addresses(v=4).map(str)
hypothesis.provisional.ip6_addr_strings = lambda: strategies.ip_addresses(v=6).map(str)
from hypothesis_jsonschema._gen_schemas import json_schemata  # noqa: E402

EXAMPLES = 10  # of a seed: later ones are variants of its first


def main():
    count, base = int(sys.argv[1]), 1_000_000 * int(sys.argv[2])
    made = {}

    def draw(number):
        @seed(number)
        @settings(max_examples=EXAMPLES, database=None, deadline=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))
        @given(json_schemata())
        def take(schema):
            if isinstance(schema, bool) or not schema:
                return
            try:
                json.dumps(schema, ensure_ascii=False).encode()
            except UnicodeEncodeError:  # half of a surrogate pair
                return
            made.setdefault(json.dumps(schema), None)

        try:
            take()
        except Exception:  # the strategy's own mistakes; how hypothesis ends a run
            pass

    number = base
    while len(made) < count:
        draw(number)
        number += 1
    for text in list(made)[:count]:
        print(text)


if __name__ == "__main__":
    main()
