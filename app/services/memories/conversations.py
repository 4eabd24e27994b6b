"""Conversations: messages of people and agents are stored as memories, one per chunk, all or none.

`prepare` reads, `cut` computes outside any transaction, `store` writes. A conversation is identified by its messages:
when it is sent again, the result is the memories stored the first time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import structlog
from sqlalchemy import Connection, delete

from app.caller import MEMORIES_WRITE, Caller
from app.clock import new_id, now_ms
from app.errors import Conflict, Invalid
from app.retrieval import chunking, cleaning, intent, tagging
from app.retrieval.chunking import Chunk, Utterance
from app.retrieval.tagging import Vocabulary
from app.services.memories import memories
from app.services.memories.llm_chunker import Chunker, ChunkerFailed
from app.services.projects import projects, sessions
from app.store.models import memory_sources
from app.store.prepared import prepare_insert
from app.store.records import Memory, Source
from app.store.scope import owned

_log = structlog.get_logger(__name__)

MAX_MESSAGES: Final = 2_000
MAX_CHARACTERS: Final = 750_000
"""More would hold the write lock for seconds."""
MAX_TAGS: Final = 50
RULES_KEY: Final = "conversationRules"
"""The key of a project's metadata that holds its rules."""

TYPE: Final = "conversation"
_INSERT_SOURCE: Final = prepare_insert(memory_sources)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as submitted; `occurred_at_epoch` is epoch ms."""

    role: str
    content: str
    occurred_at_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation as submitted. `tags` are added to each of its memories."""

    project_id: str
    messages: Sequence[Message]
    session_id: str | None = None
    tags: Sequence[str] = ()


class ConversationRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A project's own words per tag and action. They replace those of a built-in name; an empty list disables it."""

    tags: dict[str, list[str]] = {}
    actions: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class PreparedConversation:
    """A checked and cleaned conversation, with the rules of its project."""

    conversation: Conversation
    origin: str
    utterances: Sequence[Utterance]
    rules: ConversationRules
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """The memories of a conversation in order, how many chunks it has, and whether any memory is new."""

    memories: Sequence[Memory]
    chunks: int
    is_new: bool


class _SourceMetadata(msgspec.Struct, frozen=True):
    """What a memory's source records: its place in the conversation, and the conversation's counts."""

    place: int
    memories: int
    chunks: int


def prepare(connection: Connection, caller: Caller, conversation: Conversation) -> PreparedConversation:
    """Check that the caller may store a conversation, and clean it.

    Raises Invalid when it is too long, Forbidden for a project outside the caller's scope, NotFound for a session of
    another project, and Conflict when the project's rules do not have the documented form.
    """
    if sum(len(message.content) for message in conversation.messages) > MAX_CHARACTERS:
        raise Invalid.field("body.messages", f"must be at most {MAX_CHARACTERS} characters in total; send it in parts")
    caller.require(MEMORIES_WRITE)
    projects.require(connection, caller, conversation.project_id)
    if conversation.session_id is not None:
        sessions.require_of_project(connection, caller, conversation.session_id, conversation.project_id)
    rules = _rules(projects.get(connection, caller, conversation.project_id).metadata)
    utterances = _utterances(conversation.messages)
    origin = _origin(conversation.session_id, utterances)
    prepared = PreparedConversation(conversation, origin, utterances, rules)
    return replace(prepared, is_known=find_stored(connection, caller, prepared) is not None)


def cut(prepared: PreparedConversation, chunker: Chunker | None) -> list[Chunk]:
    """Return the chunks: cut by the model if there is one and the conversation is new, else by the rules."""
    if chunker is not None and prepared.utterances and not prepared.is_known:
        try:
            return chunking.cut_at(prepared.utterances, chunker.starts(prepared.utterances))
        except ChunkerFailed as failure:
            _log.warning("chunker_failed", reason=str(failure), project=prepared.conversation.project_id)
    actions = Vocabulary({**intent.DEFAULT_ACTIONS, **prepared.rules.actions})
    return chunking.cut(prepared.utterances, actions)


def store(
    connection: Connection, caller: Caller, prepared: PreparedConversation, chunks: Sequence[Chunk]
) -> StoredConversation:
    """Store the chunks as memories, unless the conversation is already stored. Raises what prepare() raises."""
    conversation = prepared.conversation
    if (existing := find_stored(connection, caller, prepared)) is not None:
        return existing
    tags = Vocabulary({**tagging.DEFAULT_TAGS, **prepared.rules.tags})
    added = [memories.add(connection, caller, _memory(conversation, chunk, tags)) for chunk in chunks]
    distinct = list({memory.id: memory for memory, _ in added}.values())
    _replace_sources(connection, caller, prepared, distinct, len(chunks))
    return StoredConversation(distinct, len(chunks), any(is_new for _, is_new in added))


def find_stored(connection: Connection, caller: Caller, prepared: PreparedConversation) -> StoredConversation | None:
    """Return the memories of a conversation; None when it is new, or some of them have been deleted."""
    sources = owned(memory_sources, caller, memory_sources.c.memory_item_id, memory_sources.c.metadata).where(
        memory_sources.c.project_id == prepared.conversation.project_id, memory_sources.c.origin == prepared.origin
    )
    try:
        rows = [
            (msgspec.convert(metadata, _SourceMetadata), memory_id)
            for memory_id, metadata in connection.execute(sources)
        ]
    except msgspec.ValidationError:  # written by an import from elsewhere
        return None
    if not rows or len(rows) < rows[0][0].memories:
        return None
    in_order = [memory_id for _, memory_id in sorted(rows, key=lambda row: row[0].place)]
    return StoredConversation(memories.by_ids(connection, caller, in_order), rows[0][0].chunks, is_new=False)


def _rules(metadata: dict[str, Any]) -> ConversationRules:
    try:
        return msgspec.convert(metadata.get(RULES_KEY, {}), type=ConversationRules)
    except msgspec.ValidationError as cause:
        raise Conflict(f"The project's metadata.{RULES_KEY} does not have the documented form: {cause}") from cause


def _utterances(messages: Sequence[Message]) -> list[Utterance]:
    """Return the cleaned, non-empty messages of speakers. A message without a time gets that of the previous one."""
    at_epoch = next((each.occurred_at_epoch for each in messages if each.occurred_at_epoch is not None), None)
    spoken = []
    for message in messages:
        at_epoch = at_epoch if message.occurred_at_epoch is None else message.occurred_at_epoch
        speaker, said = cleaning.speaker(message.role), cleaning.clean(message.content)
        if speaker is not None and said:
            spoken.append(Utterance(speaker, said, at_epoch))
    return spoken


def _origin(session_id: str | None, utterances: Sequence[Utterance]) -> str:
    """Return the identity of a conversation: a hash of its session and messages, without their times and tags."""
    return f"conversation:{memories.content_hash([session_id, [each.line for each in utterances]])}"


def _memory(conversation: Conversation, chunk: Chunk, tags: Vocabulary) -> memories.NewMemory:
    return memories.NewMemory(
        project_id=conversation.project_id,
        kind="observation",
        type=TYPE,
        server_session_id=conversation.session_id,
        narrative=chunk.text,
        concepts=list(dict.fromkeys([*conversation.tags, *tags.names_in(chunk.text)])),
        created_at_epoch=chunk.at_epoch,
    )


def _replace_sources(
    connection: Connection, caller: Caller, prepared: PreparedConversation, stored: Sequence[Memory], chunks: int
) -> None:
    """Record which memories a conversation became, replacing its previous sources."""
    project_id = prepared.conversation.project_id
    ours = (memory_sources.c.team_id == caller.team_id) & (memory_sources.c.project_id == project_id)
    connection.execute(delete(memory_sources).where(ours, memory_sources.c.origin == prepared.origin))
    for place, memory in enumerate(stored):
        source = Source(
            id=new_id(),
            team_id=memory.team_id,
            project_id=project_id,
            memory_item_id=memory.id,
            source_type="import",
            origin=prepared.origin,
            legacy_table="conversations",
            legacy_id=memory.id,
            uri=None,
            metadata=msgspec.structs.asdict(_SourceMetadata(place, len(stored), chunks)),
            created_at_epoch=now_ms(),
        )
        _INSERT_SOURCE.run(connection, msgspec.structs.asdict(source))
