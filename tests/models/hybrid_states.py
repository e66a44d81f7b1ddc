#!/usr/bin/env python3
"""Writes the tiny models with recurrent layers (oracles/families.py) as GGUF files and runs hybrid_states_test on them.
ctest takes one family; all four take a minute and a half of two cores.

    hybrid_states.py HYBRID_STATES_TEST [--families lfm2,qwen3next] [ARGUMENTS OF CATCH2]
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "oracles"))
    import containers
    import weights
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--families", default="lfm2,qwen3next,qwen35,granitehybrid")
    arguments, others = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for family in arguments.families.split(","):
            fixture, _ = weights.load(family)
            paths.append(os.path.join(folder, f"{family}.gguf"))
            containers.write_gguf(containers.gguf_of(family, fixture), paths[-1])
        environment = {**os.environ, "LLMRT_TEST_HYBRIDS": ",".join(paths)}
        sys.exit(subprocess.run([arguments.program, *others], env=environment).returncode)


if __name__ == "__main__":
    main()
