"""The memories most relevant to a query, formatted for a prompt."""

import pytest

from app.services.search import context
from tests.services import library

DAY = 1_779_235_200_000  # 2026-05-20


@pytest.fixture
def shelf(databases, tmp_path):
    with library.opened(databases, tmp_path) as opened:
        yield opened


def built(shelf, query: str, **options) -> context.PromptContext:
    params = context.ContextParams(**{"project_ids": (shelf.project_id,), "query": query, **options})
    return context.build(shelf.engine, shelf.database, shelf.caller, params)


def test_best_memory_comes_first(shelf):
    """One line per memory, most relevant first, with the memories it is made of."""
    row = shelf.remember("Signing keys rotate weekly.", title="Key rotation", created_at_epoch=DAY)
    shelf.remember("The office has a coffee machine.", created_at_epoch=DAY)
    answer = built(shelf, "how often do signing keys rotate?")
    assert answer.context == "[memory]\n- [2026-05-20] Key rotation: Signing keys rotate weekly."
    assert [hit.memory.id for hit in answer.hits] == [row.id]
    assert answer.sufficient


@pytest.mark.parametrize("query", ["what is the weather in Lisbon tomorrow", "", "???"])
def test_context_is_empty_without_a_relevant_memory(shelf, query):
    """The agent can say that it does not know."""
    shelf.remember_all([{"narrative": f"Signing keys rotate weekly, part {n}."} for n in range(5)])
    answer = built(shelf, query, format="sandwich")
    assert (answer.context, answer.sufficient, list(answer.hits)) == ("", False, [])


def test_min_score_can_be_set(shelf):
    """minScore replaces the default."""
    shelf.remember("Signing keys rotate weekly.")
    assert built(shelf, "keys", min_score=0.0).sufficient
    assert not built(shelf, "keys", min_score=1.0).sufficient


def test_memories_without_room_are_counted(shelf):
    """`omitted` is the number of relevant memories not in the block."""
    shelf.remember_all([{"narrative": f"The gasket of pump number{n} leaks"} for n in range(8)])
    answer = built(shelf, "gasket leaks", limit=5)
    assert (len(answer.hits), answer.omitted) == (5, 3)


def test_same_query_gives_the_same_bytes(shelf):
    """Same input, same rows: same context."""
    shelf.remember_all([{"narrative": f"The gasket {n % 3} leaks at {n}"} for n in range(20)])
    assert built(shelf, "gasket 2").context == built(shelf, "gasket 2").context


def test_secrets_are_masked(shelf):
    """A stored key does not leave the server."""
    shelf.remember("The deploy key is sk-live-abcdefghijklmnop1234")
    assert "[masked]" in built(shelf, "deploy key").context
