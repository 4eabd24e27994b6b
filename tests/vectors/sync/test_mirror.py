"""The mirror keeps the index in step with the memories: every insert, edit and delete, exactly once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from app.caller import server_owner
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects
from app.store import outbox
from app.vectors.errors import EmbedderFailed, VectorsUnavailable
from app.vectors.query import staleness
from app.vectors.sync import mirror as mirroring
from tests.databases import Databases
from tests.vectors.library import Counting, Library, opened

TOKEN = {"title": "Access tokens", "narrative": "Expired access tokens are exchanged with the refresh token."}
BREAD = {"title": "Bakery", "narrative": "Sourdough bread is baked on Saturday mornings."}
ASK_TOKEN = "how do we renew credentials that ran out"


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def library(databases: Databases, tmp_path, counting) -> Iterator[Library]:
    with opened(databases, tmp_path, counting) as made:
        yield made


def test_new_memory_is_found_by_meaning(library: Library):
    """No shared words are needed; the outbox is empty afterwards."""
    token, _ = library.add(**TOKEN), library.add(**BREAD)
    library.index.mirror.drain()
    assert library.find(ASK_TOKEN) == [token]
    assert library.outbox() == []


def test_edited_memory_is_found_by_its_new_text_only(library: Library):
    """The vector follows the text, even when it changes twice."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    for narrative in ("Trains to the coast leave hourly.", "Sourdough bread is baked on Saturday."):
        library.change(memory, title="Note", narrative=narrative)
        library.index.mirror.drain()
    best = library.index.semantic_search.candidates([library.project_id], "when is bread baked", limit=1)[0]
    assert (best.memory_id, best.cosine > 0.5) == (memory, True)
    assert library.index.semantic_search.candidates([library.project_id], ASK_TOKEN, limit=1)[0].cosine < 0.2


def test_pending_edit_is_not_found_by_its_old_text(library: Library):
    """Documents of the old text are ignored; those that have not changed still count."""
    memory = library.add(**TOKEN, facts=["Bread is baked on Saturday."])
    library.index.mirror.drain()
    library.change(memory, title="Trains", narrative="Trains to the coast leave hourly.")
    (candidate,) = library.index.semantic_search.candidates([library.project_id], ASK_TOKEN, limit=5)
    assert (candidate.field, candidate.cosine < 0.2) == ("fact_0", True)
    assert library.index.semantic_search.cosines(library.project_id, ASK_TOKEN, [memory])[memory] < 0.2


def test_edit_indexed_during_a_query_is_not_found_by_its_old_text(library: Library, monkeypatch):
    """The query had read the old text, although nothing is pending any more."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    library.change(memory, title="Trains", narrative="Trains to the coast leave hourly.")
    query = library.index.collections.query

    def overtaken(*arguments, **options):
        hits = query(*arguments, **options)
        library.index.mirror.drain()
        return hits

    monkeypatch.setattr(library.index.collections, "query", overtaken)
    assert library.find(ASK_TOKEN) == []
    assert library.outbox() == []


def test_stale_texts_are_filtered_even_with_a_long_backlog(library: Library, monkeypatch):
    """Then every candidate is compared: unchanged memories are found, changed ones are not."""
    monkeypatch.setattr(staleness, "_MAX_LISTED", 1)
    changed, kept = library.add(**TOKEN), library.add(**BREAD)
    library.index.mirror.drain()
    library.change(changed, title="Trains", narrative="Trains to the coast leave hourly.")
    assert library.find(ASK_TOKEN, limit=5) == [kept]


def test_backfill_hides_nothing(library: Library):
    """Memories that are enqueued again have not changed, and are still found."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    library.index.mirror.enqueue_project(library.project_id)
    assert len(library.outbox()) == 1
    assert library.find(ASK_TOKEN) == [memory]


def test_removed_fact_loses_its_document(library: Library):
    """The index holds nothing that the memory no longer says."""
    memory = library.add(**TOKEN, facts=["one", "two", "three"])
    library.index.mirror.drain()
    library.change(memory, facts=["one"])
    library.index.mirror.drain()
    assert sorted(library.documents()) == [f"mem_{memory}_fact_0", f"mem_{memory}_narrative"]


def test_deleted_memory_leaves_no_document(library: Library):
    """The next round removes it from the index."""
    kept, gone = library.add(**TOKEN), library.add(**BREAD, facts=["a fact"])
    library.index.mirror.drain()
    library.remove(gone)
    library.index.mirror.drain()
    assert sorted(library.documents()) == [f"mem_{kept}_narrative"]


def test_unchanged_memories_are_not_embedded_again(library: Library, counting: Counting):
    """A backfill only compares them."""
    for number in range(20):
        library.add(title=f"Memory {number}", narrative="words")
    library.index.mirror.drain()
    counting.texts.clear()
    library.index.mirror.enqueue_project(library.project_id)
    assert library.index.mirror.drain() == 20
    assert counting.texts == []


def test_changed_kind_updates_metadata_without_embedding(library: Library, counting: Counting):
    """The vector is left as it is."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    counting.texts.clear()
    library.change(memory, kind="summary")
    library.index.mirror.drain()
    assert [kept["kind"] for kept in library.documents().values()] == ["summary"]
    assert counting.texts == []


def test_edit_during_embedding_wins(library: Library, counting: Counting):
    """The late vector of version 1 is discarded, and version 2 is stored."""
    memory = library.add(**TOKEN)
    counting.before = once(lambda: library.change(memory, title="Bakery", narrative=BREAD["narrative"]))
    library.index.mirror.drain()
    assert library.find("bread on a weekend morning") == [memory]
    assert [entry["memory_id"] for entry in library.outbox()] == []
    assert len(counting.texts) == 2


def test_delete_during_embedding_is_not_undone(library: Library, counting: Counting):
    """The late vector of a deleted memory is discarded."""
    other, memory = library.add(**BREAD), library.add(**TOKEN)
    counting.before = once(lambda: library.remove(memory))
    library.index.mirror.drain()
    assert list(library.documents()) == [f"mem_{other}_narrative"]


def once(act):
    """Return a hook that acts only the first time."""
    left = [act]
    return lambda texts: left.pop()() if left else None


def test_expired_claim_stores_nothing(library: Library, counting: Counting):
    """Another process may have taken over meanwhile, so the late one discards its work."""
    library.add(**TOKEN)
    steal = "UPDATE vector_outbox SET claimed_by = 'another', claimed_until_epoch = 0"
    counting.before = once(lambda: run(library, steal))
    assert library.index.mirror.drain_once() == 1
    assert library.documents() == {}
    assert len(library.outbox()) == 1


def run(library: Library, statement: str) -> None:
    with library.database.write() as connection:
        connection.execute(text(statement))


def test_claim_of_another_process_is_respected(library: Library, counting: Counting):
    """Two drainers do not embed the same memory."""
    library.add(**TOKEN)
    run(library, "UPDATE vector_outbox SET claimed_by = 'another', claimed_until_epoch = 9999999999999")
    assert library.index.mirror.drain_once() == 0
    assert counting.texts == []


def test_two_drainers_share_the_work_without_overlap(library: Library, counting: Counting):
    """Like two servers on one database and one Chroma."""
    library.add(**TOKEN)
    library.index.mirror.drain()
    counting.texts.clear()
    for number in range(60):
        library.add(title=f"Memory {number}", narrative="words")
    first = library.index.mirror
    second = mirroring.Mirror(library.database, library.index.collections, first._writer, claim_prefix="")
    with ThreadPoolExecutor(2) as threads:
        taken = [drained.result() for drained in [threads.submit(one.drain) for one in (first, second)]]
    assert (sum(taken), len(counting.texts), len(library.documents())) == (60, 60, 61)
    assert library.outbox() == []


def test_bad_row_is_set_aside_and_does_not_block_others(library: Library, counting: Counting, monkeypatch):
    """It keeps its error; the rest of its batch is found."""
    monkeypatch.setattr(mirroring, "_backoff_ms", lambda _: 0)

    def refuse(texts):
        if any("poison" in one for one in texts):
            raise ValueError("cannot embed this")

    counting.before = refuse
    bad = library.add(title="poison", narrative="poison")
    good = library.add(**TOKEN)
    library.index.mirror.drain()
    assert library.find(ASK_TOKEN) == [good]
    (entry,) = library.outbox()
    assert (entry["memory_id"], entry["failed"], entry["attempts"]) == (bad, 1, mirroring.MAX_ATTEMPTS)
    assert entry["last_error"] == "ValueError: cannot embed this"


def test_retry_failed_indexes_rows_that_were_set_aside(library: Library, counting: Counting, monkeypatch):
    """Once the cause is gone they are indexed like any other."""
    monkeypatch.setattr(mirroring, "MAX_ATTEMPTS", 1)
    counting.before = once(lambda: (_ for _ in ()).throw(ValueError("just once")))
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    assert [entry["failed"] for entry in library.outbox()] == [1]
    with library.database.write() as connection:
        assert outbox.retry_failed(connection) == 1
    library.index.mirror.drain()
    assert library.find(ASK_TOKEN) == [memory]


def test_failed_attempts_back_off_exponentially():
    """Pauses double and are jittered."""
    pauses = [[mirroring._backoff_ms(attempts) for _ in range(50)] for attempts in (1, 2, 3)]
    assert max(pauses[0]) <= 4_000 < max(pauses[1]) <= 8_000 < max(pauses[2]) <= 16_000
    assert len(set(pauses[0])) > 10


def test_missing_model_is_an_outage_and_uses_up_no_attempts(library: Library, counting: Counting):
    """When nothing can be embedded, no memory is at fault."""

    def fail(_):
        raise EmbedderFailed("no model")

    counting.before = fail
    library.add(**TOKEN)
    with pytest.raises(EmbedderFailed):
        library.index.mirror.drain()
    (entry,) = library.outbox()
    assert (entry["attempts"], entry["failed"], entry["claimed_by"]) == (0, 0, None)


def test_outage_releases_claims(library: Library):
    """When Chroma is back, nothing waits for a lease to end."""
    library.add(**TOKEN)
    blocker = library.folder / "chroma"
    blocker.write_text("not a folder")
    with pytest.raises(VectorsUnavailable):
        library.index.mirror.drain()
    assert [entry["claimed_by"] for entry in library.outbox()] == [None]


def test_blank_memory_is_acknowledged_without_documents(library: Library):
    """It does not stay pending forever."""
    memory = library.add(**TOKEN)
    run(library, f"UPDATE memory_items SET title = ' ', narrative = '' WHERE id = '{memory}'")
    library.index.mirror.drain()
    assert (library.documents(), library.outbox()) == ({}, [])


def test_deleted_project_is_dropped_in_one_call(library: Library):
    """However many memories it had, its collection is dropped at once and nothing stays pending."""
    for number in range(40):
        library.add(title=f"Memory {number}", narrative="words")
    library.index.mirror.drain()
    library.remove_project()
    assert len(library.outbox()) == 40
    library.index.mirror.drain_once()
    assert library.outbox() == []
    assert library.index.collections.names() == []


@pytest.mark.parametrize("names", [("前端", "后台"), ("a/b", "a_b"), ("🙂", "x" * 300)])
def test_projects_never_share_a_collection(library: Library, names):
    """A collection is named by the project's id, whatever the project is called."""
    first, second = (library.new_project(name) for name in names)
    one, two = library.add(project_id=first, **TOKEN), library.add(project_id=second, **TOKEN)
    library.index.mirror.drain()
    assert library.find(ASK_TOKEN, project_id=first, limit=5) == [one]
    assert library.find(ASK_TOKEN, project_id=second, limit=5) == [two]


def test_equal_project_names_in_two_teams_never_share_a_collection(library: Library):
    """One team's memories never appear in the other team's results."""
    library.add(**TOKEN)
    with library.database.write() as connection:
        other = server_owner().within(teams.create(connection, server_owner(), name="other").id)
        twin = projects.create(connection, other, name="project").id
        bread = memories.NewMemory(project_id=twin, kind="manual", type="manual", **BREAD)
        theirs = memories.add(connection, other, bread).memory.id
    library.index.mirror.drain()
    assert library.find(ASK_TOKEN, project_id=twin, limit=5) == [theirs]


def test_backfill_does_not_delay_new_memories(library: Library):
    """Changes of clients come before backfilled memories."""
    for number in range(3 * mirroring.BATCH_MEMORIES):
        library.add(title=f"Memory {number}", narrative="words")
    library.index.mirror.drain()
    library.index.mirror.enqueue_project(library.project_id)
    fresh = library.add(**TOKEN)
    library.index.mirror.drain_once()
    assert library.find(ASK_TOKEN) == [fresh]
