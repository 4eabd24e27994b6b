"""The server enforces the limits in the OpenAPI document."""

import pytest


@pytest.mark.parametrize("count", [0, 501])
@pytest.mark.parametrize("noun", ["memories", "events"])
def test_a_batch_outside_1_to_500_is_refused(team, noun, count):
    """The limits of a batch are in its schema, and enforced."""
    item = {"projectId": team.project_id, "content": "a fact"}
    if noun == "events":
        item = {"projectId": team.project_id, "sourceType": "hook", "eventType": "tool_use", "occurredAtEpoch": 1}

    refused = team.http.post(f"/v1/{noun}/batch", json=[item] * count)

    assert (refused.status_code, refused.json()["error"]) == (400, "ValidationError")
