"""examples/kubernetes against the program: flags and settings that it has, paths that it serves, times that fit.

Environment: LLMRT_PROGRAM (llmrt), LLMRT_PACED_SERVER (the server of load tests). Where kubernetes-validate is installed
the files are checked against the schemas of Kubernetes, too.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import tomllib
import urllib.error
import urllib.request

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/kubernetes"
DOCUMENTS = [(file.name, document) for file in sorted(FOLDER.glob("*.yaml"))
             for document in yaml.safe_load_all(file.read_text())]


def of_kind(kind):
    return [document for _, document in DOCUMENTS if document["kind"] == kind]


DEPLOYMENT = of_kind("Deployment")[0]
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
PROBES = ["startupProbe", "readinessProbe", "livenessProbe"]


def given():
    """Flags and their values; true for those without."""
    return {name: value or True for name, _, value in (argument[2:].partition("=") for argument in CONTAINER["args"])}


@pytest.fixture(scope="module")
def known_flags():
    command = [os.environ["LLMRT_PROGRAM"], "serve", "--help"]
    help_text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?m)^\s+(?:-\w, )*--([a-z0-9-]+)", help_text))


@pytest.fixture(scope="module")
def server():
    """The address of one that wants a key."""
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("test 0123456789abcdef\n")
        keys.flush()
        process = subprocess.Popen([os.environ["LLMRT_PACED_SERVER"], "--api-key-file", keys.name],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        yield f"http://127.0.0.1:{process.stdout.readline().split()[1]}"
        process.send_signal(signal.SIGINT)
        process.wait(30)


def status(url, key=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def test_flags_exist(known_flags):
    assert CONTAINER["command"][:2] == ["llmrt", "serve"]
    assert all(argument.startswith("--") for argument in CONTAINER["args"])
    assert len(known_flags) > 50
    assert set(given()) <= known_flags


def test_settings_exist(known_flags):
    for text in of_kind("ConfigMap")[0]["data"].values():
        assert set(tomllib.loads(text)) <= known_flags


def test_flags_of_the_ray_examples_exist(known_flags):
    used = set(re.findall(r'"--([a-z-]+)"', (ROOT / "examples/ray/worker.py").read_text()))
    assert "unix-socket" in used and used <= known_flags


@pytest.mark.parametrize("probe", PROBES)
def test_probes_are_answered_without_a_key(server, probe):
    assert CONTAINER[probe]["httpGet"]["port"] == "http"
    assert status(server + CONTAINER[probe]["httpGet"]["path"]) == 200


def test_metrics_and_routes_are_served(server):
    request = urllib.request.Request(server + "/openapi.json", headers={"Authorization": "Bearer 0123456789abcdef"})
    paths = set(json.load(urllib.request.urlopen(request, timeout=30))["paths"])
    metrics = [endpoint["path"] for monitor in of_kind("PodMonitor")
               for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    assert metrics and set(metrics) <= paths
    assert "open-metrics" in given()  # Prometheus has no key here
    for route in of_kind("HTTPRoute"):
        for rule in route["spec"]["rules"]:
            for match in rule["matches"]:
                assert any(path.startswith(match["path"]["value"]) for path in paths)


def test_ports_agree():
    port = int(given()["port"])
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": port}]
    assert of_kind("Service")[0]["spec"]["ports"][0]["targetPort"] == "http"
    for pool in of_kind("InferencePool"):
        assert pool["spec"]["targetPorts"] == [{"number": port}]
    assert all(endpoint["port"] == "http" for monitor in of_kind("PodMonitor")
               for endpoint in monitor["spec"]["podMetricsEndpoints"])


def test_selectors_choose_the_pods():
    labels = POD["metadata"]["labels"].items()
    selectors = [DEPLOYMENT["spec"]["selector"]["matchLabels"], of_kind("Service")[0]["spec"]["selector"]]
    selectors += [document["spec"]["selector"]["matchLabels"]
                  for kind in ("PodMonitor", "InferencePool", "PodDisruptionBudget") for document in of_kind(kind)]
    assert len(selectors) == 5
    assert all(selector.items() <= labels for selector in selectors)


def test_answers_may_end():
    notice, grace = int(given()["drain-notice-s"]), int(given()["grace"])
    assert POD["spec"]["terminationGracePeriodSeconds"] >= notice + grace + 5
    # The port is open until readiness has told that no more requests should come.
    readiness = CONTAINER["readinessProbe"]
    assert readiness["periodSeconds"] * readiness["failureThreshold"] <= notice


def test_files_are_mounted():
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in POD["spec"]["volumes"]}
    for path in (given()["config"], given()["api-key-file"], CONTAINER["command"][2]):
        assert str(pathlib.PurePath(path).parent) in mounts.values()
    assert pathlib.PurePath(given()["config"]).name in of_kind("ConfigMap")[0]["data"]


@pytest.mark.parametrize("document", [document for _, document in DOCUMENTS], ids=lambda document: document["kind"])
def test_schemas_of_kubernetes(document):
    validator = pytest.importorskip("kubernetes_validate")
    try:
        validator.validate(document, validator.latest_version(), strict=True)
    except validator.SchemaNotFoundError:
        pytest.skip("a resource that is not Kubernetes' own")
