"""The memories closest to a query, by their best documents."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from tests.databases import Databases
from tests.vectors.library import Library, opened


@pytest.fixture
def library(databases: Databases, tmp_path: Path) -> Iterator[Library]:
    with opened(databases, tmp_path) as made:
        for number in range(10):
            made.add(title=f"Memory {number}", narrative=f"It tells of {number} things.", facts=["a fact"])
        made.index.mirror.drain()
        yield made


def memory_ids(library: Library) -> list[str]:
    with library.database.read() as connection:
        return list(connection.scalars(text("SELECT id FROM memory_items ORDER BY seq")))


def test_exact_cosines_are_those_of_the_best_document(library: Library):
    """The approximate index and the exact comparison agree, and unknown memories are left out."""
    question = "how many things does it tell of"
    first, second, *_ = memory_ids(library)
    exact = library.index.semantic_search.cosines(library.project_id, question, [first, second, "unknown"])
    near = library.index.semantic_search.candidates([library.project_id], question, limit=10)
    assert set(exact) == {first, second}
    approximate = {one.memory_id: one.cosine for one in near}
    assert np.allclose([exact[first], exact[second]], [approximate[first], approximate[second]], atol=1e-4)


def test_there_is_one_candidate_per_memory_and_enough_of_them(library: Library):
    """A memory with many similar facts does not crowd out the others."""
    crowd = library.add(title="Crowd", narrative="bread", facts=[f"bread is baked, {number}" for number in range(40)])
    library.index.mirror.drain()
    found = library.index.semantic_search.candidates([library.project_id], "bread is baked", limit=5)
    assert found[0].memory_id == crowd
    assert len({candidate.memory_id for candidate in found}) == len(found) >= 5


def test_candidates_of_several_projects_form_one_ranking(library: Library):
    """The best comes first, whichever project it belongs to."""
    other = library.new_project("other")
    bread = library.add(project_id=other, title="Bakery", narrative="Sourdough bread on Saturday.")
    library.index.mirror.drain()
    found = library.index.semantic_search.candidates([library.project_id, other], "sourdough bread", limit=3)
    assert (found[0].memory_id, found[0].project_id, found[0].field) == (bread, other, "narrative")
