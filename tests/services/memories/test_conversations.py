"""Conversations in a real store, chunked by the rules or by a model behind a real HTTP server."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from app.errors import Conflict
from app.llm.chat import ChatClient, ChatEndpoint
from app.retrieval.chunking import Utterance
from app.services.memories import conversations, memories
from app.services.memories.conversations import Conversation, Message, StoredConversation
from app.services.memories.llm_chunker import Chunker, ChunkerFailed, LlmChunker
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
def shelf(databases, tmp_path):
    with library.opened(databases, tmp_path) as opened:
        yield opened


def save(
    shelf: library.Library, *messages: tuple[str, str], chunker: Chunker | None = None, **fields: Any
) -> StoredConversation:
    sent = [Message(role, content) for role, content in messages or CHAT]
    conversation = Conversation(project_id=shelf.project_id, messages=sent, **fields)
    with shelf.database.read() as connection:
        prepared = conversations.prepare(connection, shelf.caller, conversation)
    chunks = conversations.cut(prepared, chunker)
    with shelf.database.write() as connection:
        return conversations.store(connection, shelf.caller, prepared, chunks)


def texts(stored: StoredConversation) -> list[str | None]:
    return [memory.narrative for memory in stored.memories]


def with_rules(shelf: library.Library, rules: Any) -> None:
    with shelf.database.write() as connection:
        changes = {"metadata": {"conversationRules": rules}}
        projects.change(connection, shelf.caller, shelf.project_id, changes)


def count(shelf: library.Library, table: str) -> int:
    with shelf.database.read() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def test_conversation_becomes_one_memory_per_chunk(shelf):
    """With its speakers, and with tags for its subjects."""
    stored = save(shelf)

    assert texts(stored) == [
        "User: Please refund order 4417 ($49.90).\nAssistant: Refunded $49.90.",
        "User: Please renew my plan for $99.\nAssistant: Renewed for $99.",
    ]
    assert [memory.concepts for memory in stored.memories] == [["finance", "order"], ["account"]]
    assert (stored.chunks, stored.is_new) == (2, True)


def test_same_conversation_sent_again_resolves_to_the_same_memories(shelf):
    """Even with other formatting, tags or rules."""
    first = save(shelf)
    with_rules(shelf, {"tags": {"plans": ["plan"]}})
    again = save(shelf, *((role, f"**{content}**") for role, content in CHAT), tags=("late",))

    assert [memory.id for memory in again.memories] == [memory.id for memory in first.memories]
    assert (again.chunks, again.is_new, count(shelf, "memory_items")) == (2, False, 2)


def test_corrected_memory_is_not_stored_again_in_its_old_form(shelf):
    """A conversation is identified by its messages, not by the current text of its memories."""
    first = save(shelf)
    with shelf.database.write() as connection:
        corrected = {"narrative": "User: Refunded $49.90."}
        memories.change(connection, shelf.caller, first.memories[0].id, corrected, precondition=lambda _: True)

    assert texts(save(shelf))[0] == "User: Refunded $49.90."
    assert count(shelf, "memory_items") == 2


def test_conversation_can_be_stored_again_after_a_memory_was_deleted(shelf):
    """Deleting leaves nothing behind that would prevent it."""
    first = save(shelf)
    with shelf.database.write() as connection:
        memories.remove(connection, shelf.caller, first.memories[0].id, precondition=lambda _: True)
    again = save(shelf)

    assert again.is_new
    assert texts(again) == texts(first)
    assert again.memories[1].id == first.memories[1].id
    assert (count(shelf, "memory_items"), count(shelf, "memory_sources")) == (2, 2)


def test_continued_conversation_adds_its_new_chunks(shelf):
    """Existing chunks are not stored twice."""
    save(shelf, *CHAT[:2])

    assert save(shelf, *CHAT).is_new
    assert count(shelf, "memory_items") == 2


def test_repeated_chunks_of_a_conversation_are_one_memory(shelf):
    """Two equal chunks are both counted, and stored once."""
    stored = save(shelf, ("user", "Refund order 7"), ("user", "Renew plan 8"), ("user", "Refund order 7"))

    assert (stored.chunks, len(stored.memories)) == (3, 2)


def test_memory_has_its_conversation_as_source(shelf):
    """All memories of a conversation have the same origin."""
    stored = save(shelf)
    with shelf.database.read() as connection:
        sources = [memories.sources(connection, shelf.caller, memory.id) for memory in stored.memories]

    assert [len(each) for each in sources] == [1, 1]
    assert len({source.origin for each in sources for source in each}) == 1


def test_malformed_sources_are_replaced(shelf):
    """An import may write anything with our origin: it is ignored, and does not cause an error."""
    save(shelf)
    with shelf.database.write() as connection:
        connection.exec_driver_sql("""UPDATE memory_sources SET metadata = '{"place": "first"}'""")

    assert (save(shelf).is_new, save(shelf).chunks, count(shelf, "memory_sources")) == (False, 2, 2)


def test_private_text_is_stored_nowhere(shelf):
    """Neither in a memory nor in the full text index; the same goes for system prompts."""
    save(shelf, ("system", "You are xyzzy."), ("user", "My plan <private>xyzzy"), ("assistant", "x</think>It is Pro."))

    assert shelf.ask("xyzzy").hits == []
    assert shelf.narratives("plan") == ["User: My plan\nAssistant: It is Pro."]


def test_conversation_with_only_private_text_stores_nothing(shelf):
    """That is not an error."""
    stored = save(shelf, ("system", "You are a bot."), ("user", "<private>all of it</private>"))

    assert (stored.memories, stored.chunks, stored.is_new) == ([], 0, False)


def test_project_can_define_its_own_rules(shelf):
    """Its rules are added to the built-in ones, and an empty list disables one."""
    with_rules(shelf, {"tags": {"plans": ["plan"], "finance": []}, "actions": {"renew": [], "ship": ["ship"]}})
    stored = save(shelf, *CHAT, ("user", "Please ship order 9."))

    assert [memory.concepts for memory in stored.memories] == [["account", "order", "plans"], ["order"]]


@pytest.mark.parametrize("rules", [None, [], "x", {"tags": ["finance"]}, {"tags": {"a": "b"}}, {"tag": {}}])
def test_malformed_rules_are_reported(shelf, rules):
    """A mistake in the metadata is an error, not a silent default."""
    with_rules(shelf, rules)

    with pytest.raises(Conflict, match="conversationRules"):
        save(shelf)
    assert count(shelf, "memory_items") == 0


def test_failure_midway_stores_nothing(shelf):
    """All memories or none: a failure of the last statement undoes the first."""

    def fail(connection, cursor, statement, *rest):
        if "conversation:" in str(rest[0]):
            raise RuntimeError("power cut")

    before = count(shelf, "memory_items")
    sent = Conversation(project_id=shelf.project_id, messages=[Message(role, said) for role, said in CHAT])
    with shelf.database.read() as connection:
        prepared = conversations.prepare(connection, shelf.caller, sent)
    chunks = conversations.cut(prepared, None)
    with pytest.raises(RuntimeError), shelf.database.write() as connection:  # noqa: PT012 - tests the rollback on leaving the block
        event.listen(connection, "before_cursor_execute", fail)
        connection.exec_driver_sql("SELECT 1")
        conversations.store(connection, shelf.caller, prepared, chunks)
    assert (count(shelf, "memory_items"), count(shelf, "memory_sources")) == (before, 0)


@pytest.fixture
def model() -> Iterator[Model]:
    with chat_model.serving() as running:
        yield running


@pytest.fixture
def chunker(model: Model) -> Iterator[LlmChunker]:
    chunker = LlmChunker(ChatClient(ChatEndpoint(model.url, "small", "secret"), time_limit_seconds=5))
    yield chunker
    chunker.close()


def test_model_decides_where_chunks_begin(shelf, model, chunker):
    """The stored text is that of the conversation, cut where the model says."""
    model.content = 'Here you are:\n```json\n{"starts": [0, 3]}\n```'

    stored = save(shelf, chunker=chunker)

    assert [text.count("\n") + 1 for text in texts(stored) if text] == [3, 1]
    assert (model.requests[0]["model"], model.keys) == ("small", ["Bearer secret"])


def test_model_is_not_called_for_a_stored_conversation(shelf, model, chunker):
    """It might cut differently the next time, and calls cost money."""
    first = save(shelf, chunker=chunker)
    model.content = '{"starts": [0, 2, 3]}'

    assert texts(save(shelf, chunker=chunker)) == texts(first)
    assert len(model.requests) == 1


def test_model_never_sees_private_text(shelf, model, chunker):
    """It only gets the text that would be stored."""
    save(shelf, ("user", "My plan <private>xyzzy</private> is Pro"), ("assistant", "Yes"), chunker=chunker)

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
def test_rules_are_the_fallback_when_the_model_fails(shelf, model, chunker, logged, answer):
    """The reason is logged, and no text of the conversation."""
    for name, value in answer.items():
        setattr(model, name, value)

    assert save(shelf, chunker=chunker).chunks == 2
    (line,) = [line for line in logged if line["event"] == "chunker_failed"]
    assert line["reason"]
    assert "4417" not in str(line)


def test_rules_are_the_fallback_when_the_model_is_unreachable(shelf, logged):
    """A closed port is a failure like any other."""
    unreachable = LlmChunker(ChatClient(ChatEndpoint("http://127.0.0.1:9/v1", "small", "")))

    assert save(shelf, chunker=unreachable).chunks == 2
    assert [line["reason"] for line in logged if line["event"] == "chunker_failed"] == ["ConnectError"]
    unreachable.close()


def test_conversation_too_long_for_the_model_is_not_sent(model, chunker):
    """The rules cut it instead."""
    with pytest.raises(ChunkerFailed, match="too long"):
        chunker.starts([Utterance("User", "word " * 100)] * 500)
    assert model.requests == []
