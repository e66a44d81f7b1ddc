"""The test-suite of the official client itself (tests/api_resources of its source package): requests with every parameter
that it knows, sync and async, answers held strictly to its types. Its authors run it against a mock that takes everything;
here it meets the server and the engine behind a device of set times, as it is and then amended (openai_suite_plugin.py). What
asks for something that is not had is refused, and listed below with the reason.

    openai_suite_test.py PACED_SERVER SOURCE      SOURCE: the unpacked source package of the openai that is installed

Needs openai[aiohttp], pytest, pytest-asyncio and rich; tools/clients installs them and fetches the source.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from hostile_client import Server

# By the name of the model that the tests ask for.
FILES = {"gpt-6-astra": ["chat/test_completions.py", "test_models.py", "test_responses.py", "responses/test_input_items.py",
                         "responses/test_input_tokens.py", "test_files.py", "test_batches.py"],
         "gpt-3.5-turbo-instruct": ["test_completions.py"]}
ANY = r"test_(method|raw_response|streaming_response)_"
# (file, tests, why they are refused): these must fail, and all others must pass.
REFUSED = [
    ("chat/test_completions.py", ANY + "(retrieve|update|list|delete)", "chats are not stored"),
    ("chat/test_completions.py", ANY + "create_with_all_params", "the token 'foo' in logit_bias, max_tokens 0, functions, audio"),
    ("test_completions.py", ANY + "create_with_all_params", "the token 'foo' in logit_bias, best_of 0, echo with suffix"),
    ("test_responses.py", ANY + "(retrieve|delete|cancel|compact)", "responses are not stored"),
    ("responses/test_input_items.py", ANY + "list", "responses are not stored"),
    ("test_models.py", ANY + "delete", "models are the operator's"),
    ("test_files.py", ANY + "create", "purpose 'assistants'"),
    ("test_files.py", ANY + "(retrieve|delete)", "a file of the id 'file_id', which nobody made"),
    ("test_files.py", ANY + "list_with_all_params", "limit 0"),
    ("test_batches.py", ANY + "(create|retrieve|cancel)", "a file or batch which nobody made"),
    ("test_batches.py", ANY + "list_with_all_params", "limit 0"),
]
# Only as they are; amended they must pass.
UNAMENDED = [
    ("test_responses.py", ANY + "create", "no input; or a conversation, which would be stored"),
    ("responses/test_input_tokens.py", ANY + "count", "no input; or a conversation"),
]


def outcomes(report):
    """Test -> None for passed, "skipped", or what went wrong."""
    told = {}
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        file = case.get("classname").removeprefix("tests.api_resources.").rsplit(".", 1)[0].replace(".", "/") + ".py"
        problem = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        text = None if problem is None else problem.get("message")
        told[file, case.get("classname").rsplit(".", 1)[1], case.get("name")] = "skipped" if case.find("skipped") is not None else text
    return told


def run(program, source, is_amended):
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, files in FILES.items():
            server = Server(program, "--name", name, "--step-ms", "0.2", "--context", "512", "--files-dir", f"{folder}/{name}")
            report = f"{folder}/report.xml"
            plugin = ["-p", "openai_suite_plugin"] if is_amended else []
            subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "-o", "addopts=", "--tb=line",
                            f"--junitxml={report}", *(f"tests/api_resources/{file}" for file in files)], cwd=source, check=False,
                           env={**os.environ, "TEST_API_BASE_URL": f"http://127.0.0.1:{server.port}/v1",
                                "PYTHONPATH": f"{source}:{pathlib.Path(__file__).parent}"}, stdout=subprocess.DEVNULL)
            told |= outcomes(report)
            errors = server.new_errors()
            assert server.end() == 0 and not errors, errors[:3]
    return told


def main():
    num_wrong = 0
    for title, is_amended, refused in (("as it is", False, REFUSED + UNAMENDED), ("amended", True, REFUSED)):
        told = run(sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), is_amended)
        counts, wrong = collections.Counter(), []
        for (file, kind, name), problem in sorted(told.items()):
            is_refused = any(file == its_file and re.match(tests, name) for its_file, tests, _ in refused)
            counts[file, "passed" if problem is None else "skipped" if problem == "skipped" else "refused"] += 1
            if problem != "skipped" and (problem is None) == is_refused:
                wrong.append(f"{file} {kind} {name}: {problem or 'passed, and should not'}")
        print(f"{title}:")
        for file in sorted({file for file, _, _ in told}):
            print(f"  {file}: {counts[file, 'passed']} passed, {counts[file, 'refused']} refused, {counts[file, 'skipped']} skipped")
        for line in wrong:
            print("FAILED openai_suite,", line[:400].replace("\n", " "))
        passed = sum(count for (_, how), count in counts.items() if how == "passed")
        print(f"  {passed} passed, {len(wrong)} not as expected", flush=True)
        num_wrong += len(wrong) + (passed == 0)
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
