"""The dashboard, the rules and the compose file: they parse, fit together, and ask for metrics that
`/metrics` has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from prometheus_client.parser import text_string_to_metric_families

from apps.monitoring.selectors import exposition
from apps.monitoring.selectors import service as broker
from apps.monitoring.views.metrics import exposition as told

DOCKER = Path(settings.BASE_DIR) / "docker"
OPERATIONS = (Path(settings.BASE_DIR) / "docs" / "operations.md").read_text()
FILES = sorted(path.relative_to(DOCKER).as_posix() for path in DOCKER.rglob("*.y*ml"))


def parsed(name: str) -> Any:
    text = (DOCKER / name).read_text()
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


def panels() -> list[dict[str, Any]]:
    found = parsed("grafana/dashboards/concord.json")["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in parsed("prometheus/rules.yml")["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return asked + [rule["expr"] for rule in rules()]


@pytest.fixture
def families(db: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an empty site tells, with one look at a broker that serves everything."""
    look = broker.BrokerLook(dict.fromkeys(broker.QUEUES, 0), {"events": True}, None)
    monkeypatch.setattr(exposition, "broker_look", lambda: look)
    return {one.name: one for one in text_string_to_metric_families(told())}


@pytest.mark.parametrize("name", FILES)
def test_every_yaml_file_parses(name: str) -> None:
    assert parsed(name)


def test_every_metric_that_is_asked_for_exists(families: dict[str, Any]) -> None:
    asked = {name for text in expressions() for name in re.findall(r"\bconcord_\w+", text)}
    assert len(asked) > 10
    assert asked - set(families) == set()
    assert "concord_nothing" not in families, "or the comparison would mean nothing"


def test_every_metric_is_told_is_documented_and_shown(families: dict[str, Any]) -> None:
    documented = set(re.findall(r"^\| `(concord_\w+)`", OPERATIONS, re.MULTILINE))
    projects = {"concord_project_runs", "concord_project_incidents_open"}
    assert set(families) | projects | {"concord_project_votes_last_hour"} == documented
    shown = " ".join(expressions())
    assert [name for name in families if name not in shown] == []


def test_labels_that_are_asked_for_are_told() -> None:
    """By another route than a scrape: an empty site has no series to look at."""
    known: dict[str, set[str]] = {}
    source = Path(exposition.__file__).read_text()
    for name, labels in re.findall(r'"(concord_\w+)",\s+"[^"]*",\s+\(([^)]*)\)', source):
        known[name] = set(re.findall(r'"(\w+)"', labels))
    for text in expressions():
        for name, selected in re.findall(r"(concord_\w+)\{([^}]*)\}", text):
            assert set(re.findall(r"(\w+)=", selected)) <= known[name], text


def test_every_panel_says_what_it_means_and_is_in_the_documentation() -> None:
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert f"**{panel['title']}**" in OPERATIONS
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_rule_says_what_is_wrong() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["alert"] in OPERATIONS


def test_the_files_that_are_mounted_exist_and_images_are_pinned() -> None:
    compose = parsed("compose.monitoring.yml")
    for service in compose["services"].values():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            assert source in compose["volumes"] or (DOCKER / source).exists(), mount
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    scrape = parsed("prometheus/prometheus.yml")["scrape_configs"][0]
    secret = scrape["authorization"]["credentials_file"].rpartition("/")[2]
    assert secret in compose["services"]["prometheus"]["secrets"]
    source = parsed("grafana/provisioning/datasources/prometheus.yml")["datasources"][0]
    uids = {t["datasource"]["uid"] for panel in panels() for t in panel["targets"]}
    assert uids == {source["uid"]}
