"""compose.yml, the Dockerfile and the files beside them: what can be told without a registry."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings

from apps.common import processes
from workers import start

ROOT = Path(settings.BASE_DIR)
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WEB_SIDE = {"prepare", "web", "streams", "events", "imports", "scheduler"}
WORKERS = {"train-cpu", "train-gpu", "short", "scorer", "answerer"}
OURS = WEB_SIDE | WORKERS
ONCE = {"prepare", "store-owner"}
MONITORING = {"prometheus", "grafana"}


def name_of(secret: str) -> str:
    return secret.rpartition("/")[2]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "secrets"
    make(folder)
    return folder


def make(folder: Path) -> None:
    subprocess.run(
        [sys.executable, str(DOCKER / "make_secrets.py"), "concord.example.org", str(folder)],
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_has_few_rights_and_one_version(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service.get("user", "") != "0:0" or name == "store-owner"  # once, without a network
    assert re.search(r":(\$\{CONCORD_VERSION:-)?v?\d+\.\d+(\.\d+)?\}?$", service["image"])
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    for port in service.get("ports", []):
        assert name == "proxy" or port.startswith("127.0.0.1:")
    assert "healthcheck" in service or name in ONCE | MONITORING


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_a_service_is_given_exists(name: str) -> None:
    service = SERVICES[name]
    for mount in service.get("volumes", []):
        source = mount.split(":")[0]
        assert source in COMPOSE["volumes"] or (DOCKER / source).exists(), mount
    given = set(service.get("secrets", []))
    assert given <= set(COMPOSE["secrets"])
    wanted = {
        name_of(value)
        for value in service.get("environment", {}).values()
        if str(value).startswith("/run/secrets/")
    }
    assert wanted <= given, "a file that is named and not mounted"
    networks = set(service.get("networks", []))
    assert networks <= set(COMPOSE["networks"])


def test_every_secret_is_made_and_none_stands_in_the_configuration(secrets: Path) -> None:
    for name, secret in COMPOSE["secrets"].items():
        assert (secrets / Path(secret["file"]).name).exists(), name
    text = (DOCKER / "compose.yml").read_text() + (DOCKER / "concord.env.example").read_text()
    for path in secrets.iterdir():
        content = path.read_text().strip()
        assert not content or content not in text
    before = {path.name: path.read_bytes() for path in secrets.iterdir()}
    make(secrets)
    assert before == {path.name: path.read_bytes() for path in secrets.iterdir()}
    assert secrets.stat().st_mode & 0o777 == 0o700


def test_variables_of_secrets_are_read_from_files_and_settings_are_documented() -> None:
    documented = (ROOT / "docs" / "settings.md").read_text()
    for name in OURS:
        for variable in SERVICES[name]["environment"]:
            is_secret = variable.removesuffix(start.FILE) in start.SECRETS
            assert is_secret or f"`{variable}`" in documented or variable[:3] == "HF_", variable
    assert "_FILE" in documented


def test_workers_reach_neither_the_database_nor_the_cache_nor_their_passwords() -> None:
    for name in ("postgres", "cache"):
        assert SERVICES[name]["networks"] == ["data"]
    for name in WORKERS:
        assert not {"data", "front"} & set(SERVICES[name]["networks"])
        assert set(SERVICES[name]["secrets"]) == {"worker_redis_url", "s3_key", "s3_secret"}
    owners = {n for n, s in SERVICES.items() if "database_owner_url" in s.get("secrets", [])}
    assert owners == {"prepare"}  # the others cannot change a table
    assert COMPOSE["networks"]["data"]["internal"]
    assert COMPOSE["networks"]["jobs"]["internal"]
    assert not {"data", "jobs"} & set(SERVICES["proxy"]["networks"])


def test_programs_wait_for_the_schema_and_start_as_up_starts_them() -> None:
    started = set()
    for name in OURS - {"prepare", "web"}:
        words = SERVICES[name]["command"]
        assert words[0] == "python"
        if name in WORKERS:
            assert words[1:3] == ["-m", "workers.start"]
            assert words[3] in start.PARTS
        else:
            assert words[1:3] == ["manage.py", "start"]
            assert words[3] in processes.PARTS
        started.add(words[3])
    assert started | {"web"} == set(start.PARTS) | set(processes.PARTS)
    for name in OURS - {"prepare"}:
        after = SERVICES[name]["depends_on"]
        assert after["prepare"]["condition"] == "service_completed_successfully"
    targets = {SERVICES[name]["build"]["target"] for name in OURS}
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", (DOCKER / "Dockerfile").read_text(), re.M))
    assert targets <= stages


def test_up_runs_every_part_with_the_start_line_of_a_service() -> None:
    up = {p.name: p.argv for p in processes.programs(port=8000, log_level="INFO")}
    for part in (*start.PARTS, *processes.PARTS):
        if part == "web":
            continue  # `up` has two servers, so that one may die
        line = start.argv(part) if part in start.PARTS else processes.argv(part, log_level="INFO")
        assert up[part] == line
    web = processes.argv("web", log_level="INFO", host="0.0.0.0")  # noqa: S104
    assert web[web.index("--host") + 1] == "0.0.0.0"  # noqa: S104
    assert set(up["web-1"]) <= {*web, "127.0.0.1", "2", "3"}


def test_the_users_of_redis_have_the_passwords_of_the_addresses(secrets: Path) -> None:
    for side, name in (("web", "web_redis_url"), ("worker", "worker_redis_url")):
        found = re.fullmatch(
            r"redis://(\S+):(\S+)@broker:6379/0", (secrets / name).read_text().strip()
        )
        assert found
        users = (secrets / "broker_users.acl").read_text()
        assert f"user concord-{side} on >{found[2]} " in users
        assert found[1] == f"concord-{side}"
        assert "change-me" not in users
    assert "concord-worker" not in (secrets / "cache_users.acl").read_text()
    store = json.loads((secrets / "store.json").read_text())["identities"][0]["credentials"][0]
    assert store["accessKey"] == (secrets / "s3_key").read_text()
    assert store["secretKey"] == (secrets / "s3_secret").read_text()
