"""Memories over HTTP."""

from tests.conftest import Tenant


def test_a_memory_that_was_written_can_be_read(team: Tenant):
    """What a POST acknowledged, a GET returns."""
    stored = team.post_memory(title="T", narrative="hello").json()["memory"]

    assert team.http.get(f"/v1/memories/{stored['id']}").json() == {"memory": stored}
