from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pytest
from sqlalchemy import text

from app.vectors import collection_names
from app.vectors.chroma.collections import Model
from app.vectors.documents import Document
from app.vectors.sync import repair
from app.vectors.sync.repair import Differences
from tests.stores import Stores
from tests.vectors.library import MINILM, Counting, Library, opened

COUNTS = ("documents", "missing", "stale", "ghost", "duplicate", "pending")


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def library(stores: Stores, tmp_path, counting) -> Iterator[Library]:
    with opened(stores, tmp_path, counting) as made:
        for number in range(10):
            made.add(title=f"Memory {number}", narrative=f"It tells of {number} things.", facts=["a fact"])
        made.index.mirror.drain()
        yield made


def counts(found: Differences) -> dict[str, int]:
    return {name: value for name, value in asdict(found).items() if name in COUNTS and value}


def compared(library: Library) -> dict[str, int]:
    return counts(library.index.repair.compare(library.project_id))


def memory_ids(library: Library) -> list[str]:
    with library.database.read() as connection:
        return list(connection.scalars(text("SELECT id FROM memory_items ORDER BY seq")))


def damage(library: Library) -> None:
    """Lose one document, change another's hash, and add one of a memory that never was."""
    name = collection_names.serving(library.project_id)
    first, second, *_ = memory_ids(library)
    collections = library.index.collections
    collections.delete(name, [f"mem_{first}_narrative"])
    stale = Document(f"mem_{second}_narrative", "", "0", {"memory_item_id": second, "text_hash": "0"})
    ghost = Document("mem_never_text", "", "1", {"memory_item_id": "never", "text_hash": "1"})
    collections.upsert(name, Model.of(MINILM), [stale, ghost], MINILM.embed(["a", "b"]))


def test_what_is_in_step_shows_no_difference(library: Library):
    """Equal in ids and content."""
    assert compared(library) == {"documents": 20}


def test_missing_stale_and_ghost_documents_are_told_apart(library: Library):
    """By id set and content hash, not by counts: here the counts are equal."""
    damage(library)
    assert compared(library) == {"documents": 20, "missing": 1, "stale": 1, "ghost": 1}


def test_a_rehearsal_changes_nothing(library: Library):
    """`--dry-run` tells what would be repaired."""
    damage(library)
    found = library.index.repair.verify(library.project_id, dry_run=True)
    assert counts(found) == compared(library)
    assert library.outbox() == []


def test_repairing_makes_it_equal_and_embeds_only_what_differs(library: Library, counting: Counting):
    """Two documents differ in text; the ghost only goes."""
    damage(library)
    counting.texts.clear()
    library.index.repair.verify(library.project_id, dry_run=False)
    assert compared(library) == {"documents": 20}
    assert len(counting.texts) == 2


def test_what_is_pending_is_not_a_fault(library: Library):
    """It will be mirrored anyway; deletes and edits alike."""
    first, second, *_ = memory_ids(library)
    library.change(first, narrative="Another text.")
    library.remove(second)
    assert compared(library) == {"documents": 20, "pending": 1}


def test_a_memory_in_the_wrong_collection_is_a_ghost(library: Library):
    """A document belongs to its project's collection only."""
    other = library.new_project("other")
    memory = library.add(project_id=other, title="Elsewhere", narrative="words")
    library.index.mirror.drain()
    stray = Document(f"mem_{memory}_narrative", "", "1", {"memory_item_id": memory, "text_hash": "1"})
    name = collection_names.serving(library.project_id)
    library.index.collections.upsert(name, Model.of(MINILM), [stray], MINILM.embed(["a"]))
    assert compared(library) == {"documents": 21, "ghost": 1}
    library.index.repair.verify(library.project_id, dry_run=False)
    assert compared(library) == {"documents": 20}
    assert len(library.documents(other)) == 1


def test_a_comparison_of_many_pages_is_exact(library: Library, monkeypatch):
    """Neither SQL nor Chroma is asked for everything at once."""
    monkeypatch.setattr(repair, "_PAGE_MEMORIES", 3)
    monkeypatch.setattr("app.vectors.chroma.collections.PAGE_DOCUMENTS", 7)
    damage(library)
    assert compared(library) == {"documents": 20, "missing": 1, "stale": 1, "ghost": 1}


def test_a_rebuilt_project_is_equal_and_has_one_collection(library: Library, counting: Counting):
    """Everything is embedded anew, whatever was there."""
    damage(library)
    counting.texts.clear()
    assert library.index.repair.rebuild(library.project_id) == 10
    assert compared(library) == {"documents": 20}
    assert len(counting.texts) == 20
    assert library.index.collections.names() == [collection_names.serving(library.project_id)]


def test_a_rebuild_answers_from_the_old_collection_and_takes_changes_along(library: Library, counting: Counting):
    """What is edited, added and deleted while it runs is right afterwards."""
    first, second, *_ = memory_ids(library)
    answers = []

    def meanwhile(done: int) -> None:
        if done == 10:
            library.change(first, title="Bakery", narrative="Sourdough bread on Saturday.")
            library.remove(second)
            library.add(title="Trains", narrative="Trains to the coast leave hourly.")
            library.index.mirror.drain()
            answers.extend(library.find("sourdough bread"))

    library.index.repair.rebuild(library.project_id, meanwhile)
    assert answers == [first]
    assert compared(library) == {"documents": 19}
    assert library.find("sourdough bread") == [first]


@pytest.mark.parametrize("left_behind", [["filling"], ["retired"], ["filling", "retired"]])
def test_an_interrupted_rebuild_is_undone(library: Library, left_behind):
    """The survey at start drops what no longer serves."""
    for kind in left_behind:
        library.index.collections.ensure(getattr(collection_names, kind)(library.project_id), Model.of(MINILM))
    survey = library.index.repair.survey()
    assert (survey.empty, survey.other_model, survey.ownerless) == ([], [], [])
    assert library.index.collections.names() == [collection_names.serving(library.project_id)]


def test_a_rebuild_cut_between_its_renames_loses_nothing(library: Library):
    """The old collection takes its place again."""
    serving, retired = collection_names.serving(library.project_id), collection_names.retired(library.project_id)
    library.index.collections.ensure(collection_names.filling(library.project_id), Model.of(MINILM))
    library.index.collections.rename(serving, retired)
    library.index.repair.survey()
    assert library.index.collections.names() == [serving]
    assert compared(library) == {"documents": 20}


def test_the_survey_finds_what_is_empty_and_what_has_no_project(library: Library):
    """Both are looked for at start."""
    library.index.collections.drop(collection_names.serving(library.project_id))
    library.index.collections.ensure(collection_names.serving("no-such-project"), Model.of(MINILM))
    survey = library.index.repair.survey()
    assert survey.empty == [library.project_id]
    assert survey.ownerless == [collection_names.serving("no-such-project")]


def test_syncing_the_same_again_and_again_keeps_the_folder_small(library: Library):
    """Unchanged documents are skipped, so the index does not grow."""

    def size() -> int:
        return sum(path.stat().st_size for path in (library.folder / "chroma").rglob("*") if path.is_file())

    before = size()
    for _ in range(20):
        library.index.mirror.enqueue_project(library.project_id)
        library.index.mirror.drain()
    assert size() <= 1.2 * before


def test_exact_cosines_are_those_of_the_best_document(library: Library):
    """The approximate index and the exact comparison agree, and unknown memories are left out."""
    question = "how many things does it tell of"
    first, second, *_ = memory_ids(library)
    exact = library.index.meaning.cosines(library.project_id, question, [first, second, "unknown"])
    near = library.index.meaning.candidates([library.project_id], question, limit=10)
    assert set(exact) == {first, second}
    approximate = {one.memory_id: one.cosine for one in near}
    assert np.allclose([exact[first], exact[second]], [approximate[first], approximate[second]], atol=1e-4)


def test_candidates_are_one_a_memory_and_widened_until_there_are_enough(library: Library):
    """A memory of many near facts does not crowd the others out."""
    crowd = library.add(title="Crowd", narrative="bread", facts=[f"bread is baked, {number}" for number in range(40)])
    library.index.mirror.drain()
    found = library.index.meaning.candidates([library.project_id], "bread is baked", limit=5)
    assert found[0].memory_id == crowd
    assert len({candidate.memory_id for candidate in found}) == len(found) >= 5


def test_the_candidates_of_several_projects_are_one_ranking(library: Library):
    """Best first, whichever project it is of."""
    other = library.new_project("other")
    bread = library.add(project_id=other, title="Bakery", narrative="Sourdough bread on Saturday.")
    library.index.mirror.drain()
    found = library.index.meaning.candidates([library.project_id, other], "sourdough bread", limit=3)
    assert (found[0].memory_id, found[0].project_id, found[0].field) == (bread, other, "narrative")


def test_the_probe_goes_through_every_stage(library: Library):
    """Connect, list, embed, query: each with its time."""
    probed = library.index.probe()
    assert (probed.ok, probed.stage, probed.error) == (True, "done", None)
    assert list(probed.milliseconds) == ["connect", "list", "embed", "query"]


def test_the_probe_names_the_stage_that_failed(stores: Stores, tmp_path):
    """A folder that cannot be used is a matter of connecting."""
    (tmp_path / "chroma").write_text("not a folder")
    with opened(stores, tmp_path) as library:
        probed = library.index.probe()
    assert (probed.ok, probed.stage) == (False, "connect")
    assert "cannot be used" in probed.error
