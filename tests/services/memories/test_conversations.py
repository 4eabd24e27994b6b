"""Conversations through the real store, cut by the rules or by a model behind a real HTTP server."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from app.errors import Conflict
from app.retrieval.chunking import Utterance
from app.services.memories import conversations, memories
from app.services.memories.conversations import Conversation, Message, Stored
from app.services.memories.llm_chunker import ChatAddress, ChatChunker, Chunker, ChunkerFailed
from app.services.projects import projects
from tests import chat_model
from tests.chat_model import Model
from tests.services import library

CHAT = (
    ("user", "Please refund order 4417 ($49.90)."),
    ("assistant", "Refunded $49.90."),
    ("user", "Please renew my plan for $99."),
    ("assistant", "Renewed for $99."),
)


@pytest.fixture
def shelf(stores, tmp_path):
    with library.opened(stores, tmp_path) as opened:
        yield opened


def told(shelf: library.Library, *messages: tuple[str, str], chunker: Chunker | None = None, **fields: Any) -> Stored:
    sent = [Message(role, content) for role, content in messages or CHAT]
    conversation = Conversation(project_id=shelf.project_id, messages=sent, **fields)
    with shelf.database.read() as connection:
        prepared = conversations.prepare(connection, shelf.caller, conversation)
    chunks = conversations.cut(prepared, chunker)
    with shelf.database.write() as connection:
        return conversations.store(connection, shelf.caller, prepared, chunks)


def texts(stored: Stored) -> list[str | None]:
    return [memory.narrative for memory in stored.memories]


def with_rules(shelf: library.Library, rules: Any) -> None:
    with shelf.database.write() as connection:
        changes = {"metadata": {"conversationRules": rules}}
        projects.change(connection, shelf.caller, shelf.project_id, changes)


def count(shelf: library.Library, table: str) -> int:
    with shelf.database.read() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def test_a_conversation_becomes_a_memory_a_chunk(shelf):
    """With its speakers, and tagged by what it is about."""
    stored = told(shelf)

    assert texts(stored) == [
        "User: Please refund order 4417 ($49.90).\nAssistant: Refunded $49.90.",
        "User: Please renew my plan for $99.\nAssistant: Renewed for $99.",
    ]
    assert [memory.concepts for memory in stored.memories] == [["finance", "order"], ["account"]]
    assert (stored.chunks, stored.is_new) == (2, True)


def test_the_same_conversation_again_is_the_same_memories(shelf):
    """However it is decorated, and whatever its tags and rules are by then."""
    first = told(shelf)
    with_rules(shelf, {"tags": {"plans": ["plan"]}})
    again = told(shelf, *((role, f"**{content}**") for role, content in CHAT), tags=("late",))

    assert [memory.id for memory in again.memories] == [memory.id for memory in first.memories]
    assert (again.chunks, again.is_new, count(shelf, "memory_items")) == (2, False, 2)


def test_a_memory_that_was_corrected_is_not_stored_as_it_was_before(shelf):
    """The conversation is known by what was said, not by what its memories say now."""
    first = told(shelf)
    with shelf.database.write() as connection:
        corrected = {"narrative": "User: Refunded $49.90."}
        memories.change(connection, shelf.caller, first.memories[0].id, corrected, precondition=lambda _: True)

    assert texts(told(shelf))[0] == "User: Refunded $49.90."
    assert count(shelf, "memory_items") == 2


def test_a_conversation_of_which_a_memory_was_deleted_can_be_stored_again(shelf):
    """Deleting leaves nothing behind that would keep it out."""
    first = told(shelf)
    with shelf.database.write() as connection:
        memories.remove(connection, shelf.caller, first.memories[0].id, precondition=lambda _: True)
    again = told(shelf)

    assert again.is_new
    assert texts(again) == texts(first)
    assert again.memories[1].id == first.memories[1].id
    assert (count(shelf, "memory_items"), count(shelf, "memory_sources")) == (2, 2)


def test_a_conversation_that_goes_on_adds_what_is_new(shelf):
    """The chunks that stand already are not stored once more."""
    told(shelf, *CHAT[:2])

    assert told(shelf, *CHAT).is_new
    assert count(shelf, "memory_items") == 2


def test_repeats_within_a_conversation_are_one_memory(shelf):
    """Two chunks that say the same are counted and stored once."""
    stored = told(shelf, ("user", "Refund order 7"), ("user", "Renew plan 8"), ("user", "Refund order 7"))

    assert (stored.chunks, len(stored.memories)) == (3, 2)


def test_a_memory_names_the_conversation_it_came_from(shelf):
    """As every import does: its sources lead back."""
    stored = told(shelf)
    with shelf.database.read() as connection:
        sources = [memories.sources(connection, shelf.caller, memory.id) for memory in stored.memories]

    assert [len(each) for each in sources] == [1, 1]
    assert len({source.origin for each in sources for source in each}) == 1


def test_sources_that_somebody_else_wrote_are_put_right(shelf):
    """An import may bring anything under our name: it is no trace, and no failure."""
    told(shelf)
    with shelf.database.write() as connection:
        connection.exec_driver_sql("""UPDATE memory_sources SET metadata = '{"place": "first"}'""")

    assert (told(shelf).is_new, told(shelf).chunks, count(shelf, "memory_sources")) == (False, 2, 2)


def test_private_words_are_stored_nowhere(shelf):
    """Neither in a memory nor in full text, nor does a system prompt."""
    told(shelf, ("system", "You are xyzzy."), ("user", "My plan <private>xyzzy"), ("assistant", "x</think>It is Pro."))

    assert shelf.ask("xyzzy").hits == []
    assert shelf.narratives("plan") == ["User: My plan\nAssistant: It is Pro."]


def test_a_conversation_of_private_words_only_stores_nothing(shelf):
    """There is nothing to remember, and that is no error."""
    stored = told(shelf, ("system", "You are a bot."), ("user", "<private>all of it</private>"))

    assert (stored.memories, stored.chunks, stored.is_new) == ([], 0, False)


def test_a_project_has_rules_of_its_own(shelf):
    """Its words are added to the built-in ones, and an empty list ends a rule."""
    with_rules(shelf, {"tags": {"plans": ["plan"], "finance": []}, "actions": {"renew": [], "ship": ["ship"]}})
    stored = told(shelf, *CHAT, ("user", "Please ship order 9."))

    assert [memory.concepts for memory in stored.memories] == [["account", "order", "plans"], ["order"]]


@pytest.mark.parametrize("rules", [None, [], "x", {"tags": ["finance"]}, {"tags": {"a": "b"}}, {"tag": {}}])
def test_rules_of_another_form_are_told(shelf, rules):
    """A mistake in the metadata is an answer, and no silent default."""
    with_rules(shelf, rules)

    with pytest.raises(Conflict, match="conversationRules"):
        told(shelf)
    assert count(shelf, "memory_items") == 0


def test_a_failure_on_the_way_leaves_nothing(shelf):
    """All memories or none: what fails at the last statement undoes the first."""

    def fail(connection, cursor, statement, *rest):
        if "conversation:" in str(rest[0]):
            raise RuntimeError("power cut")

    before = count(shelf, "memory_items")
    sent = Conversation(project_id=shelf.project_id, messages=[Message(role, said) for role, said in CHAT])
    with shelf.database.read() as connection:
        prepared = conversations.prepare(connection, shelf.caller, sent)
    chunks = conversations.cut(prepared, None)
    with pytest.raises(RuntimeError), shelf.database.write() as connection:  # noqa: PT012 - the point is the leaving
        event.listen(connection, "before_cursor_execute", fail)
        connection.exec_driver_sql("SELECT 1")
        conversations.store(connection, shelf.caller, prepared, chunks)
    assert (count(shelf, "memory_items"), count(shelf, "memory_sources")) == (before, 0)


@pytest.fixture
def model() -> Iterator[Model]:
    with chat_model.serving() as running:
        yield running


@pytest.fixture
def chunker(model: Model) -> Iterator[ChatChunker]:
    asked = ChatChunker(ChatAddress(model.url, "small", "secret"), time_limit_seconds=5)
    yield asked
    asked.close()


def test_a_model_says_where_chunks_begin(shelf, model, chunker):
    """What is stored are the words of the conversation, cut where the model said."""
    model.content = 'Here you are:\n```json\n{"starts": [0, 3]}\n```'

    stored = told(shelf, chunker=chunker)

    assert [text.count("\n") + 1 for text in texts(stored) if text] == [3, 1]
    assert (model.requests[0]["model"], model.keys) == ("small", ["Bearer secret"])


def test_a_model_is_not_asked_about_a_conversation_that_is_known(shelf, model, chunker):
    """It might cut otherwise the next time, and it costs."""
    first = told(shelf, chunker=chunker)
    model.content = '{"starts": [0, 2, 3]}'

    assert texts(told(shelf, chunker=chunker)) == texts(first)
    assert len(model.requests) == 1


def test_a_model_never_sees_what_is_private(shelf, model, chunker):
    """It gets what would be stored, and no more."""
    told(shelf, ("user", "My plan <private>xyzzy</private> is Pro"), ("assistant", "Yes"), chunker=chunker)

    assert "xyzzy" not in str(model.requests)


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 500},
        {"status": 401},
        {"content": "I cannot do that."},
        {"content": '{"starts": "all"}'},
        {"content": '{"starts": [0, 99]}'},
        {"content": '{"starts": [0, -1]}'},
        {"content": '{"starts": [0, 2, 1]}'},
        {"content": '{"starts": [0, 0]}'},
        {"content": "{}"},
    ],
)
def test_when_the_model_fails_the_rules_cut_and_the_reason_is_logged(shelf, model, chunker, logged, answer):
    """Nothing is lost for a model's sake, and no word of the conversation gets into the log."""
    for name, value in answer.items():
        setattr(model, name, value)

    assert told(shelf, chunker=chunker).chunks == 2
    (line,) = [line for line in logged if line["event"] == "chunker_failed"]
    assert line["reason"]
    assert "4417" not in str(line)


def test_a_model_that_is_not_there_costs_nothing_but_the_attempt(shelf, logged):
    """A closed port is a failure like any other."""
    nobody = ChatChunker(ChatAddress("http://127.0.0.1:9/v1", "small", ""))

    assert told(shelf, chunker=nobody).chunks == 2
    assert [line["reason"] for line in logged if line["event"] == "chunker_failed"] == ["ConnectError"]
    nobody.close()


@pytest.mark.parametrize("drip_seconds", [0.02, 5.0])
def test_a_slow_model_is_not_waited_for(model, drip_seconds):
    """The limit holds for the whole reply, whether it is silent or comes drop by drop."""
    model.drip_seconds = drip_seconds
    impatient = ChatChunker(ChatAddress(model.url, "small", ""), time_limit_seconds=0.2)

    with pytest.raises(ChunkerFailed):
        impatient.starts([Utterance("User", "one"), Utterance("User", "two")])
    impatient.close()


def test_a_conversation_that_is_too_long_for_the_model_is_not_sent(model, chunker):
    """The rules cut it at once."""
    with pytest.raises(ChunkerFailed, match="too long"):
        chunker.starts([Utterance("User", "word " * 100)] * 500)
    assert model.requests == []


def test_a_key_does_not_show():
    """Neither in a repr nor in what is logged of one."""
    assert "secret" not in repr(ChatAddress("http://x", "small", "secret"))
