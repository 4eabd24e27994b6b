"""/v1/projects/{id}/retention: rules as plain objects, validated strictly."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Tenant

RULES = [
    {"kinds": ["prompt"], "maxAgeDays": 90},
    {"types": ["chat"], "keepLast": 500},
    {"expireWhen": ["已下架", "deprecated"], "afterDays": 30},
]


def path(team: Tenant) -> str:
    return f"/v1/projects/{team.project_id}/retention"


def test_rules_are_read_as_they_were_set(team: Tenant):
    """A new project has none."""
    assert team.http.get(path(team)).json() == {"rules": []}
    assert team.http.put(path(team), json={"rules": RULES}).json() == {"rules": RULES}
    assert team.http.get(path(team)).json() == {"rules": RULES}
    assert team.http.put(path(team), json={"rules": []}).json() == {"rules": []}


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"kinds": ["prompt"]},
        {"kinds": ["nonsense"], "maxAgeDays": 1},
        {"maxAgeDays": 0},
        {"maxAgeDays": "90"},
        {"keepLast": -1},
        {"expireWhen": []},
        {"expireWhen": ["  "]},
        {"afterDays": 5},
        {"olderThan": 5},
    ],
)
def test_an_invalid_rule_changes_nothing(team: Tenant, rule: dict[str, Any]):
    """It is a 400, and the old rules are kept."""
    team.http.put(path(team), json={"rules": RULES})

    assert team.http.put(path(team), json={"rules": [rule]}).status_code == 400
    assert team.http.get(path(team)).json() == {"rules": RULES}


def test_another_teams_rules_are_out_of_reach(team: Tenant, as_team: Callable[[str], Tenant]):
    """They look like those of an unknown project."""
    stranger = as_team("b").http

    assert stranger.get(path(team)).status_code == 404
    assert stranger.put(path(team), json={"rules": []}).status_code == 404
