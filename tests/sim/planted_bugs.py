#!/usr/bin/env python3
"""Plants bugs into the core, one at a time, and demands that a simulation finds each of them.

    tests/sim/planted_bugs.py BUILD_DIR [--seeds N] [--only WORD] [--write-seeds]
    tests/sim/planted_bugs.py --places

planted_engine.py has the bugs that engine_sim must find, planted_groups.py those of groups_sim, planted_disk.py those
of disk_sim, planted_fleet.py those of fleet_sim and of two tests, which have no seeds. A bug is one replaced place
in one source file. The file is copied, changed and compiled as the build would; the object goes first into the
simulation's link line, so that the archive's own version is not taken. A place that is not found exactly once is an
error: a bug that was not planted proves nothing. --places checks this alone, and builds nothing. The seed
that found a bug the last time (planted_seeds.json, by --write-seeds) is tried before all others.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True  # the lists below stand in the source tree
import planted_disk
import planted_engine
import planted_fleet
import planted_groups

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Several times what all seeds take without a bug, also beside other work: what is slow has not been found.
HANGS_S = 900
# Some bugs take memory for ever, and would take it from whatever else runs.
MEMORY_BYTES = 1 << 30
SEEDS_FILE = os.path.join(ROOT, "tests", "sim", "planted_seeds.json")

BUGS = [("engine_sim", *bug) for bug in planted_engine.BUGS] + [("groups_sim", *bug) for bug in planted_groups.BUGS]
BUGS += [("disk_sim", *bug) for bug in planted_disk.BUGS] + [("fleet_sim", *bug) for bug in planted_fleet.BUGS]
BUGS += [("placement_test", *bug) for bug in planted_fleet.PLACED]
BUGS += [("fleet_test", *bug) for bug in planted_fleet.TESTED]
# What shows in times shows in so many seeds together.
SEEDS_MOST = {"fleet_sim": 40}


class Build:
    def __init__(self, build_dir):
        self.dir = os.path.abspath(build_dir)
        with open(os.path.join(self.dir, "compile_commands.json")) as f:
            self.commands = {os.path.relpath(c["file"], ROOT): c for c in json.load(f)}
        if missing := {bug[2] for bug in BUGS} - self.commands.keys():
            raise SystemExit(f"planted_bugs: {build_dir}: expected each source with bugs to be compiled by itself, found "
                             f"none of {', '.join(sorted(missing))}: LLMRT_UNITY_LEFT_OUT has to name their libraries")
        self.links = {program: self.link_of(program) for program in {bug[0] for bug in BUGS}}

    def link_of(self, program):
        lines = subprocess.run(["ninja", "-C", self.dir, "-t", "commands", program], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        link = shlex.split(next(l for l in reversed(lines) if f"-o tests/{program} " in l))
        first, last = [i for i, word in enumerate(link) if word == "&&"]  # ": && g++ ... && :"
        return link[first + 1:last]

    def compile(self, source, planted):
        """Compiles the planted copy as the build compiles `source` (a path from the root)."""
        command = self.commands[source]
        words = shlex.split(command["command"])
        words[words.index("-o") + 1] = planted + ".o"
        words[words.index("-c") + 1] = planted
        if ccache := shutil.which("ccache"):
            words.insert(0, ccache)
        # As CMakeLists.txt has it for the build.
        environment = {**os.environ, "CCACHE_BASEDIR": ROOT, "CCACHE_NOHASHDIR": "1",
                       "CCACHE_SLOPPINESS": "pch_defines,time_macros"}
        subprocess.run(words, cwd=command["directory"], check=True, env=environment)

    def link_with(self, program, planted_object, output):
        words = list(self.links[program])
        words[words.index("-o") + 1] = output
        first_archive = next(i for i, word in enumerate(words) if word.endswith(".a"))
        words.insert(first_archive, planted_object)
        subprocess.run(words, cwd=self.dir, check=True)


def planted_text(bug):
    """The source file with the bug in it."""
    _, name, file, old, new = bug
    with open(os.path.join(ROOT, file)) as f:
        text = f.read()
    count = text.count(old)
    if count != 1:
        raise SystemExit(f"planted_bugs: {name}: {file}: expected this place once, found it {count} times:\n{old}")
    return text.replace(old, new)


def plant(bug, build):
    """Builds the simulation with the bug in it; returns the program's path."""
    simulation, name, file, _, _ = bug
    # The same folder in every run: ccache has the object of a bug in a file that is as it was.
    root = os.path.join(build.dir, "planted", hashlib.sha256(f"{simulation}: {name}".encode()).hexdigest()[:16])
    path = os.path.join(root, file)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(planted_text(bug))
    build.compile(file, path)
    program = os.path.join(root, simulation)
    build.link_with(simulation, path + ".o", program)
    return program


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def find(bug, build, num_seeds, likely_seed):
    """Whether the simulation finds the bug, what it says, and with which seed where it says so."""
    try:
        program = plant(bug, build)
    except subprocess.CalledProcessError:
        return False, "it does not compile", None
    seeds = [["--seeds", str(min(num_seeds, SEEDS_MOST.get(bug[0], num_seeds)))]]
    if bug[0].endswith("_test"):
        seeds = [[]]
    elif likely_seed is not None:
        seeds.insert(0, ["--first-seed", str(likely_seed), "--seeds", "1"])
    try:
        for options in seeds:
            run = subprocess.run([program, *options], capture_output=True, text=True, timeout=HANGS_S,
                                 preexec_fn=limit_memory)
            if run.returncode != 0:
                break
    except subprocess.TimeoutExpired:
        return True, "it hangs", None
    finally:
        shutil.rmtree(os.path.dirname(program))
    said = [line for line in (run.stderr.strip() or run.stdout.strip()).splitlines() if line]
    seed = re.match(r"FAILED: seed (\d+)", said[0]) if said else None
    return run.returncode != 0, said[0][:150] if said else f"exit status {run.returncode}", seed and int(seed[1])


def timed(function, *arguments):
    begin = time.monotonic()
    return function(*arguments), time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description="every planted bug must be found by its simulation")
    parser.add_argument("build_dir", nargs="?")
    parser.add_argument("--seeds", type=int, default=4000)
    parser.add_argument("--only", default="", help="bugs whose name, simulation or file holds this word")
    parser.add_argument("--places", action="store_true", help="only check that each place is found exactly once")
    parser.add_argument("--write-seeds", action="store_true", help="note which seed found each bug")
    args = parser.parse_args()
    bugs = [bug for bug in BUGS if any(args.only in word for word in bug[:3])]
    for bug in bugs:
        planted_text(bug)
    if args.places:
        print(f"the places of {len(bugs)} bugs are there")
        return
    if args.build_dir is None:
        parser.error("expected BUILD_DIR or --places")
    build = Build(args.build_dir)
    with open(SEEDS_FILE) as f:
        likely_seeds = json.load(f)
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(lambda bug: timed(find, bug, build, args.seeds, likely_seeds.get(bug[1])), bugs)
        for bug, ((found, said, seed), seconds) in zip(bugs, answers):
            survivors += not found
            if seed is not None:
                likely_seeds[bug[1]] = seed
            print(f"{'found   ' if found else 'SURVIVED'}  {seconds:5.1f} s  {bug[1]}: {said}", flush=True)
    print(f"{len(bugs) - survivors} of {len(bugs)} planted bugs found")
    if args.write_seeds:
        names = {bug[1] for bug in BUGS}
        with open(SEEDS_FILE, "w") as f:
            json.dump({name: seed for name, seed in sorted(likely_seeds.items()) if name in names}, f, indent=1)
            f.write("\n")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
