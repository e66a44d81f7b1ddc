"""tools/monitoring: every name of a metric or label in the Grafana dashboard and in the alerts is one that a server tells.

Method: the PromQL is cut into tokens, and what it selects is held against /metrics of the engine and the server behind a
device of set times. Names of devices, which that one has not, are those that docs/observability.md lists. That the alerts
fire when they should is shown by promtool (alert_rules_test).

Environment: LLMRT_PACED_SERVER (the binary).
"""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tools/monitoring"
DASHBOARD = json.loads((FOLDER / "grafana_dashboard.json").read_text(encoding="utf-8"))
ALERTS = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

FUNCTIONS = {"rate", "increase", "histogram_quantile"}
AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
KEYWORDS = {"and", "or", "unless"}
TOKEN = re.compile(r'\s+|"(?:[^"\\]|\\.)*"|[a-zA-Z_:][\w:]*|\d+(?:\.\d+)?|[=!<>]=|=~|!~|.')
# Given by Prometheus; the second only where a server has several models.
TARGET, SEVERAL = {"instance", "job"}, {"model"}
OPEN_VALUES = {"status", "code", "instance", "job", "le"}  # labels whose values depend on what has happened


class Query:
    """What an expression selects, and the labels that its result has (None: those of what it selects)."""

    def __init__(self, text):
        self.text = text
        self.tokens = [token for token in TOKEN.findall(text) if not token.isspace()]
        self.selected, self.grouped, self.is_aggregated = [], set(), False
        at = 0
        while at < len(self.tokens):
            at = self.take(at)

    def take(self, at):
        token, following = self.tokens[at], self.tokens[at + 1:at + 2]
        if token in AGGREGATIONS:
            self.is_aggregated = True
        elif token == "by":
            end = self.tokens.index(")", at)
            self.grouped |= set(self.tokens[at + 2:end]) - {","}
            return end + 1
        elif token == "[":
            return self.tokens.index("]", at) + 1
        elif re.match(r"[a-zA-Z_:]", token) and token not in KEYWORDS:
            if following == ["("]:
                assert token in FUNCTIONS, f"{self.text}: no function {token}"
                return at + 1
            matchers, end = {}, at + 1
            if following == ["{"]:
                end = self.tokens.index("}", at) + 1
                inside = [part for part in self.tokens[at + 2:end - 1] if part != ","]
                assert len(inside) % 3 == 0, self.text
                for label, operator, value in zip(*[iter(inside)] * 3):
                    matchers[label] = (operator, json.loads(value))
            self.selected.append((token, matchers))
            return end
        return at + 1


class Metrics:
    """Series by name, with the values of each label."""

    def __init__(self, text):
        self.series = {}
        for family in text_string_to_metric_families(text):
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
            for suffix in suffixes:
                self.series[family.name + suffix] = {}
            for sample in family.samples:
                for label, value in sample.labels.items():
                    self.series[sample.name].setdefault(label, set()).add(value)


def devices():
    text = (ROOT / "docs/observability.md").read_text(encoding="utf-8").split("\n## Devices\n")[1].split("\n## ")[0]
    return {name: {} for name in re.findall(r"`(llmrt_device_\w+)`", text)}


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("alice a-secret-of-some-length\n")
    server = subprocess.Popen([os.environ["LLMRT_PACED_SERVER"], "--step-ms", "1", "--api-key-file", str(keys),
                               "--files-dir", str(tmp_path_factory.mktemp("files"))],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        port = int(server.stdout.readline().split()[1])

        def ask(path, body=None):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body and json.dumps(body).encode(), {
                "Content-Type": "application/json", "Authorization": "Bearer a-secret-of-some-length"})
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    return response.read().decode()
            except urllib.error.HTTPError as error:
                return error.read().decode()

        ask("/v1/completions", {"prompt": "One", "max_tokens": 3})
        ask("/v1/completions", {"prompt": "One", "temperature": -1})
        read = Metrics(ask("/metrics"))
    finally:
        server.terminate()
        server.wait(30)
    read.series |= {name: labels for name, labels in devices().items() if name not in read.series}
    assert "llmrt_kv_blocks" in read.series and len(devices()) == 7
    return read


def check(metrics, query, builtin=()):
    assert query.selected, query.text
    labels = set(TARGET | SEVERAL)
    for name, matchers in query.selected:
        if name in builtin:
            continue
        assert name in metrics.series, f"{query.text}: no metric {name}"
        told = metrics.series[name]
        labels |= told.keys()
        for label, (operator, value) in matchers.items():
            assert label in told.keys() | TARGET, f"{query.text}: {name} has no label {label}"
            if label not in OPEN_VALUES:
                assert operator == "=" and value in told[label], f"{query.text}: {label} is never {value}"
    assert query.grouped <= labels, f"{query.text}: no label {query.grouped - labels}"
    return query.grouped if query.is_aggregated else labels


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel(metrics, panel):
    assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
    for target in panel["targets"]:
        query = Query(target["expr"])
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= check(metrics, query), f"{target['legendFormat']} of {query.text}"
        # Whatever is chosen above the board counts.
        assert all(matchers.get("instance") == ("=~", "$instance") for _, matchers in query.selected), query.text


def test_dashboard(metrics):
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
            assert name in metrics.series and label in TARGET


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_alert(metrics, alert):
    check(metrics, Query(alert["expr"]), builtin=("up",))
    assert alert["labels"]["severity"] in ("critical", "warning") and alert["annotations"]["summary"]


def test_every_alert_is_shown_to_fire_and_to_be_quiet():
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    told = [(case["alertname"], bool(case.get("exp_alerts"))) for test in tests for case in test["alert_rule_test"]]
    for alert in ALERTS:
        assert {(alert["alert"], True), (alert["alert"], False)} <= set(told)


@pytest.mark.parametrize("text", [
    "llmrt_kv_blokcs", 'llmrt_requests_finished_total{raison="eos"}', 'llmrt_requests_finished_total{reason="end"}',
    "sum by (verdicts) (llmrt_saturated)", "llmrt_kv_blocks / llmrt_kv_blocks_total", "rat(llmrt_steps_total[1m])",
    "llmrt_step_rows", "1 + 1"])
def test_wrong_names_are_found(metrics, text):
    with pytest.raises(AssertionError):
        check(metrics, Query(text))
