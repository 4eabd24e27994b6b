"""The Kubernetes example: valid, as confined as the compose files, and short."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.docker import FOLDER
from tests.docker.test_compose import OURS

TEXT = (FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")
RESOURCES: dict[str, dict[str, Any]] = {resource["kind"]: resource for resource in yaml.safe_load_all(TEXT)}
PODS = {kind: RESOURCES[kind]["spec"]["template"]["spec"] for kind in ("Job", "Deployment")}


def test_it_is_short():
    assert len(TEXT.splitlines()) < 120


@pytest.mark.parametrize("kind", RESOURCES)
def test_a_resource_is_valid_by_its_schema(kind: str):
    """Without keys that Kubernetes would ignore."""
    kubernetes_validate.validate(RESOURCES[kind], kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS.keys())
def test_a_pod_is_confined(pod: dict[str, Any]):
    """It has the image's user id, no privileges, a scratch volume only, and no secrets in its environment."""
    (container,) = pod["containers"]

    assert container["image"] == OURS
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [each for each in container["env"] if "SECRET" in each["name"] and not each["name"].endswith("_FILE")] == []


def test_the_service_finds_the_replicas():
    deployment, service = RESOURCES["Deployment"]["spec"], RESOURCES["Service"]["spec"]

    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == service["selector"]
    assert deployment["replicas"] == 2


def test_the_servers_do_not_get_the_role_that_owns_the_tables():
    (secret,) = [volume["secret"] for volume in PODS["Deployment"]["volumes"] if "secret" in volume]

    assert {item["key"] for item in secret["items"]} == {"database_url", "jwt_secret"}
