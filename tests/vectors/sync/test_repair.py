"""The index is compared with the memories, and repaired or rebuilt where it differs."""

from collections.abc import Iterator
from dataclasses import asdict

import pytest
from sqlalchemy import text

from app.vectors import collection_names
from app.vectors.chroma.collections import Model
from app.vectors.documents import Document
from app.vectors.sync import repair
from app.vectors.sync.repair import Differences
from tests.databases import Databases
from tests.vectors.library import MINILM, Counting, Library, opened

COUNTS = ("documents", "missing", "stale", "orphans", "duplicate", "pending")


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def library(databases: Databases, tmp_path, counting) -> Iterator[Library]:
    with opened(databases, tmp_path, counting) as made:
        for number in range(10):
            made.add(title=f"Memory {number}", narrative=f"It tells of {number} things.", facts=["a fact"])
        made.index.mirror.drain()
        yield made


def counts(differences: Differences) -> dict[str, int]:
    return {name: value for name, value in asdict(differences).items() if name in COUNTS and value}


def compare(library: Library) -> dict[str, int]:
    return counts(library.index.repair.compare(library.project_id))


def memory_ids(library: Library) -> list[str]:
    with library.database.read() as connection:
        return list(connection.scalars(text("SELECT id FROM memory_items ORDER BY seq")))


def damage(library: Library) -> None:
    """Delete one document, change another's hash, and add one of a memory that never existed."""
    name = collection_names.live(library.project_id)
    first, second, *_ = memory_ids(library)
    collections = library.index.collections
    collections.delete(name, [f"mem_{first}_narrative"])
    stale = Document(f"mem_{second}_narrative", "", "0", {"memory_item_id": second, "text_hash": "0"})
    orphan = Document("mem_never_text", "", "1", {"memory_item_id": "never", "text_hash": "1"})
    collections.upsert(name, Model.of(MINILM), [stale, orphan], MINILM.embed(["a", "b"]))


def test_synced_collection_shows_no_difference(library: Library):
    """Ids and content are equal."""
    assert compare(library) == {"documents": 20}


def test_missing_stale_and_orphan_documents_are_distinguished(library: Library):
    """By id and content hash, not by counts: here the counts are equal."""
    damage(library)
    assert compare(library) == {"documents": 20, "missing": 1, "stale": 1, "orphans": 1}


def test_dry_run_changes_nothing(library: Library):
    """`--dry-run` only reports what would be repaired."""
    damage(library)
    differences = library.index.repair.verify(library.project_id, dry_run=True)
    assert counts(differences) == compare(library)
    assert library.outbox() == []


def test_repair_embeds_only_what_differs(library: Library, counting: Counting):
    """Two documents differ in text; the orphan is only deleted."""
    damage(library)
    counting.texts.clear()
    library.index.repair.verify(library.project_id, dry_run=False)
    assert compare(library) == {"documents": 20}
    assert len(counting.texts) == 2


def test_pending_memories_are_not_a_fault(library: Library):
    """They will be indexed anyway, deletes and edits alike."""
    first, second, *_ = memory_ids(library)
    library.change(first, narrative="Another text.")
    library.remove(second)
    assert compare(library) == {"documents": 20, "pending": 1}


def test_document_in_the_wrong_collection_is_an_orphan(library: Library):
    """A document belongs into its project's collection only."""
    other = library.new_project("other")
    memory = library.add(project_id=other, title="Elsewhere", narrative="words")
    library.index.mirror.drain()
    stray = Document(f"mem_{memory}_narrative", "", "1", {"memory_item_id": memory, "text_hash": "1"})
    name = collection_names.live(library.project_id)
    library.index.collections.upsert(name, Model.of(MINILM), [stray], MINILM.embed(["a"]))
    assert compare(library) == {"documents": 21, "orphans": 1}
    library.index.repair.verify(library.project_id, dry_run=False)
    assert compare(library) == {"documents": 20}
    assert len(library.documents(other)) == 1


def test_comparison_of_many_pages_is_exact(library: Library, monkeypatch):
    """Neither SQL nor Chroma is read in one go."""
    monkeypatch.setattr(repair, "_PAGE_MEMORIES", 3)
    monkeypatch.setattr("app.vectors.chroma.collections.PAGE_DOCUMENTS", 7)
    damage(library)
    assert compare(library) == {"documents": 20, "missing": 1, "stale": 1, "orphans": 1}


def test_rebuilt_project_is_equal_and_has_one_collection(library: Library, counting: Counting):
    """Everything is embedded again, whatever was there."""
    damage(library)
    counting.texts.clear()
    assert library.index.repair.rebuild(library.project_id) == 10
    assert compare(library) == {"documents": 20}
    assert len(counting.texts) == 20
    assert library.index.collections.names() == [collection_names.live(library.project_id)]


def test_live_collection_answers_during_a_rebuild_and_changes_are_carried_over(library: Library, counting: Counting):
    """Edits, inserts and deletes during the rebuild are right afterwards."""
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
    assert compare(library) == {"documents": 19}
    assert library.find("sourdough bread") == [first]


@pytest.mark.parametrize("left_behind", [["staging"], ["retired"], ["staging", "retired"]])
def test_interrupted_rebuild_is_undone(library: Library, left_behind):
    """The audit at start-up drops staging and retired collections."""
    for kind in left_behind:
        library.index.collections.ensure(getattr(collection_names, kind)(library.project_id), Model.of(MINILM))
    audit = library.index.repair.audit()
    assert (audit.empty, audit.other_model, audit.orphans) == ([], [], [])
    assert library.index.collections.names() == [collection_names.live(library.project_id)]


def test_rebuild_interrupted_between_its_renames_loses_nothing(library: Library):
    """The retired collection goes live again."""
    live, retired = collection_names.live(library.project_id), collection_names.retired(library.project_id)
    library.index.collections.ensure(collection_names.staging(library.project_id), Model.of(MINILM))
    library.index.collections.rename(live, retired)
    library.index.repair.audit()
    assert library.index.collections.names() == [live]
    assert compare(library) == {"documents": 20}


def test_audit_finds_empty_projects_and_orphan_collections(library: Library):
    """Both are checked at start-up."""
    library.index.collections.drop(collection_names.live(library.project_id))
    library.index.collections.ensure(collection_names.live("no-such-project"), Model.of(MINILM))
    audit = library.index.repair.audit()
    assert audit.empty == [library.project_id]
    assert audit.orphans == [collection_names.live("no-such-project")]


def test_repeated_syncs_do_not_grow_the_folder(library: Library):
    """Unchanged documents are skipped."""

    def size() -> int:
        return sum(path.stat().st_size for path in (library.folder / "chroma").rglob("*") if path.is_file())

    before = size()
    for _ in range(20):
        library.index.mirror.enqueue_project(library.project_id)
        library.index.mirror.drain()
    assert size() <= 1.2 * before
