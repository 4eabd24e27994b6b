"""What the memories say about a question, ready to be put into a prompt."""

import pytest

from app.services.search import context
from tests.services import library

DAY = 1_779_235_200_000  # 2026-05-20


@pytest.fixture
def shelf(databases, tmp_path):
    with library.opened(databases, tmp_path) as opened:
        yield opened


def told(shelf, query: str, **options) -> context.PromptContext:
    params = context.ContextParams(**{"project_ids": (shelf.project_id,), "query": query, **options})
    return context.build(shelf.searching, shelf.database, shelf.caller, params)


def test_the_answer_comes_first(shelf):
    """One line a memory, the most relevant first, with receipts."""
    row = shelf.remember("Signing keys rotate weekly.", title="Key rotation", created_at_epoch=DAY)
    shelf.remember("The office has a coffee machine.", created_at_epoch=DAY)
    answer = told(shelf, "how often do signing keys rotate?")
    assert answer.context == "[memory]\n- [2026-05-20] Key rotation: Signing keys rotate weekly."
    assert [hit.memory.id for hit in answer.hits] == [row.id]
    assert answer.sufficient


@pytest.mark.parametrize("query", ["what is the weather in Lisbon tomorrow", "", "???"])
def test_what_is_not_known_is_an_empty_context(shelf, query):
    """Nothing relevant: the agent can say that it does not know."""
    shelf.remember_all([{"narrative": f"Signing keys rotate weekly, part {n}."} for n in range(5)])
    answer = told(shelf, query, format="sandwich")
    assert (answer.context, answer.sufficient, list(answer.hits)) == ("", False, [])


def test_a_least_score_can_be_set(shelf):
    """minScore replaces the built-in one."""
    shelf.remember("Signing keys rotate weekly.")
    assert told(shelf, "keys", min_score=0.0).sufficient
    assert not told(shelf, "keys", min_score=1.0).sufficient


def test_what_found_no_room_is_counted(shelf):
    """`omitted` tells how many relevant memories are not in the block."""
    shelf.remember_all([{"narrative": f"The gasket of pump number{n} leaks"} for n in range(8)])
    answer = told(shelf, "gasket leaks", limit=5)
    assert (len(answer.hits), answer.omitted) == (5, 3)


def test_the_same_question_has_the_same_bytes(shelf):
    """Same input, same rows: same context."""
    shelf.remember_all([{"narrative": f"The gasket {n % 3} leaks at {n}"} for n in range(20)])
    assert told(shelf, "gasket 2").context == told(shelf, "gasket 2").context


def test_secrets_stay_inside(shelf):
    """A key that was stored is masked on the way out."""
    shelf.remember("The deploy key is sk-live-abcdefghijklmnop1234")
    assert "[masked]" in told(shelf, "deploy key").context
