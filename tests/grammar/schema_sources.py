"""Schemas for the scripts that measure masks and draw under them, each source by name: pairs of a name and a schema.

hypothesis  random ones of draft 7, of the package hypothesis-jsonschema (0.9.13 is the last with its strategy), by seed
real        those that check-jsonschema ships: GitHub workflows, Dependabot, Azure pipelines, ...
suite       those of JSON-Schema-Test-Suite, as schema_suite.py has it

What is downloaded from PyPI is kept in a folder. None: the source cannot be had.
"""
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import schema_suite

CACHE = pathlib.Path.home() / ".cache/llmrt/schema-sources"
HYPOTHESIS = ["hypothesis-jsonschema==0.9.13", "hypothesis==6.112.1", "jsonschema==4.26.0"]
REAL = "check-jsonschema==0.38.0"
GENERATE = pathlib.Path(__file__).with_name("generate_schemas.py")


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600).returncode == 0


def hypothesis(count, seed, cache=CACHE):
    lines = cache / f"hypothesis-{count}-{seed}.jsonl"
    if not lines.exists():
        packages = cache / "hypothesis"
        if not packages.exists() and not pip("install", "--target", str(packages), *HYPOTHESIS):
            return None
        command = [sys.executable, str(GENERATE), str(count), str(seed)]
        environment = os.environ | {"PYTHONPATH": str(packages)}
        made = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment,
                              cwd=cache, timeout=600)
        lines.write_text(made.stdout)
    draft = {"$schema": schema_suite.DRAFTS["draft7"]}
    return [(f"hypothesis {i}", draft | json.loads(line)) for i, line in enumerate(lines.read_text().splitlines())]


def real(cache=CACHE):
    folder = cache / REAL
    if not folder.exists() and not pip("download", "--no-deps", "-d", str(folder), REAL):
        return None
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if "/vendor/" in name and name.endswith(".json")]
        return [(pathlib.PurePath(name).stem, json.loads(wheel.read(name))) for name in sorted(names)]


def suite(cache=pathlib.Path.home() / ".cache/llmrt/schema-suite"):
    schemas = []
    root = schema_suite.suite(cache)
    for draft, dialect in schema_suite.DRAFTS.items():
        for path in sorted((root / draft).glob("**/*.json")):
            for group in json.loads(path.read_text()):
                schema = group["schema"]
                if isinstance(schema, dict) and "$schema" not in schema:
                    schema = {"$schema": dialect, **schema}
                schemas.append((f"{draft} {path.stem}: {group['description']}", schema))
    return schemas
