"""Vectors of claude-mem's own Chroma folder are adopted where text and model match."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.clock import now_ms
from app.services.operations import vector_adoption
from app.services.operations.vector_adoption import Adopted
from app.store.models import memory_sources
from app.vectors.chroma.connection import Connection
from app.vectors.chroma.server import ChildServer
from app.vectors.sync import adoption
from tests.databases import Databases
from tests.vectors.library import MINILM, Counting, Library, opened

NARRATIVE = "Expired access tokens are exchanged with the refresh token."
FACTS = ["Tokens live for one hour.", "The refresh token is rotated."]
SUMMARY = "Sourdough bread is baked on Saturday mornings."
PROMPT = "Why do trains to the coast leave late?"


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def library(databases: Databases, tmp_path: Path, counting: Counting) -> Iterator[Library]:
    (tmp_path / "ours").mkdir()
    with opened(databases, tmp_path / "ours", counting) as made:
        yield made


def imported(library: Library, table: str, number: int, **fields: object) -> str:
    """Store a memory as the import of a claude-mem database does."""
    memory = library.add(**fields)
    source = {
        "id": f"{table}-{number}",
        "team_id": library.caller.team_id,
        "project_id": library.project_id,
        "memory_item_id": memory,
        "source_type": "import",
        "origin": "claude-mem:test",
        "legacy_table": table,
        "legacy_id": str(number),
        "metadata": {},
        "created_at_epoch": now_ms(),
    }
    with library.database.write() as connection:
        connection.execute(memory_sources.insert().values(source))
    return memory


def claude_mem_folder(path: Path, stored: dict[str, str], *, turned: bool = False) -> Path:
    """Create a Chroma folder as claude-mem does: ids, texts and metadata. `turned` simulates another model."""
    connection = Connection(ChildServer(path))
    vectors = MINILM.embed(list(stored.values()))
    if turned:
        vectors = np.roll(vectors, 1, axis=1)
    made = connection.send("POST", "/collections", body={"name": "cm__payments-api"}, timeout_seconds=10)
    body = {
        "ids": list(stored),
        "documents": list(stored.values()),
        "embeddings": vectors.tolist(),
        "metadatas": [{"sqlite_id": 1, "doc_type": "observation", "project": "payments-api"} for _ in stored],
    }
    connection.send("POST", f"/collections/{made['id']}/add", body=body, timeout_seconds=10)
    connection.close()
    return path


def adopt(library: Library, folder: Path) -> Adopted:
    with adoption.open_folder(folder) as pages:
        return vector_adoption.adopt(library.database, library.index, library.caller, pages)


def test_vectors_of_the_same_text_are_adopted_and_the_rest_is_embedded(library, counting, tmp_path: Path):
    """An observation and a summary with the same id are never confused: each has its own table."""
    token = imported(library, "observations", 1, title="Tokens", narrative=NARRATIVE, facts=FACTS)
    bread = imported(library, "session_summaries", 1, text=SUMMARY)
    train = imported(library, "user_prompts", 1, text=PROMPT)
    folder = claude_mem_folder(
        tmp_path / "theirs",
        {
            "obs_1_narrative": NARRATIVE,
            "obs_1_fact_0": FACTS[0],
            "obs_1_fact_1": FACTS[1],
            "summary_1_learned": SUMMARY,
            "prompt_1": PROMPT,
            "obs_2_narrative": "Nobody imported this one.",
        },
    )
    counting.texts.clear()
    assert adopt(library, folder) == Adopted(vectors=6, other_model=0, adopted=4, embedded=1, projects=1)
    assert f"Tokens\n{NARRATIVE}" in counting.texts
    assert not {*FACTS, PROMPT} & set(counting.texts[8:])
    assert library.find("how long does a token live") == [token]
    assert library.find("baking bread") == [bread]
    assert library.find("late trains") == [train]
    assert library.index.repair.compare(library.project_id).is_equal


def test_text_that_has_changed_since_is_embedded(library: Library, tmp_path: Path):
    """The vector of the old text is ignored."""
    imported(library, "observations", 1, text="The new text.")
    folder = claude_mem_folder(tmp_path / "theirs", {"obs_1_text": "The old text."})
    assert adopt(library, folder) == Adopted(vectors=1, other_model=0, adopted=0, embedded=1, projects=1)


def test_vectors_of_another_model_are_ignored(library: Library, tmp_path: Path):
    """A sample is embedded and compared, whatever the collection's metadata says."""
    imported(library, "observations", 1, text=PROMPT)
    folder = claude_mem_folder(tmp_path / "theirs", {"obs_1_text": PROMPT}, turned=True)
    assert adopt(library, folder) == Adopted(vectors=1, other_model=1, adopted=0, embedded=1, projects=1)


def test_adopting_twice_embeds_nothing_again(library: Library, tmp_path: Path):
    """Adoption is idempotent."""
    imported(library, "observations", 1, text=PROMPT)
    folder = claude_mem_folder(tmp_path / "theirs", {"obs_1_text": PROMPT})
    adopt(library, folder)
    assert adopt(library, folder).embedded == 0


def test_source_folder_is_not_changed(library: Library, tmp_path: Path):
    """It is read from a copy."""
    folder = claude_mem_folder(tmp_path / "theirs", {"obs_1_text": PROMPT})

    def content() -> dict[Path, str]:
        return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}

    before = content()
    adopt(library, folder)
    assert content() == before


def test_folder_without_a_chroma_database_is_rejected(tmp_path: Path):
    """The error names the folder."""
    with pytest.raises(adoption.NotAChromaFolder, match="not a Chroma folder"), adoption.open_folder(tmp_path):
        pass
