"""Names of collections tell what each is for, whatever a project's id looks like."""

import pytest

from app.vectors import collection_names as names

IDS = ["0198c1b2-7d4e-7abc-8def-0123456789ab", "with__underscores", "cm__"]


@pytest.mark.parametrize("project_id", IDS)
def test_project_of_a_live_collection_is_recognised(project_id: str):
    """And it is not taken for one that a rebuild left behind."""
    assert names.project_of(names.live(project_id)) == project_id
    assert names.unfinished(names.live(project_id)) is None


@pytest.mark.parametrize("project_id", IDS)
@pytest.mark.parametrize("name", [names.staging, names.retired])
def test_collection_of_an_unfinished_rebuild_is_recognised(project_id: str, name):
    """It never serves searches."""
    assert names.unfinished(name(project_id)) == project_id
    assert names.project_of(name(project_id)) is None


@pytest.mark.parametrize("name", ["", "my_collection", "other__next", "old__old"])
def test_collection_of_another_program_is_nobodys(name: str):
    """It is left alone."""
    assert (names.project_of(name), names.unfinished(name)) == (None, None)
