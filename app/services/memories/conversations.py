"""Conversations: what people and agents said becomes memories, one a chunk, all or none.

`prepare` reads, `cut` thinks without a transaction, `store` writes. A conversation is known by what was said in it:
sent again, it is the memories that it became the first time.
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
from app.store.prepared import inserting
from app.store.records import Memory, Source
from app.store.scope import owned

_log = structlog.get_logger(__name__)

MAX_MESSAGES: Final = 2_000
MAX_CHARACTERS: Final = 750_000
"""More would hold the write lock for seconds."""
MAX_TAGS: Final = 50
RULES_KEY: Final = "conversationRules"
"""Where a project keeps its rules, in its metadata."""

TYPE: Final = "conversation"
_INSERT_SOURCE: Final = inserting(memory_sources)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was sent; `occurred_at_epoch` is epoch ms."""

    role: str
    content: str
    occurred_at_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation as it was sent. `tags` go to each of its memories."""

    project_id: str
    messages: Sequence[Message]
    session_id: str | None = None
    tags: Sequence[str] = ()


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A project's own words for tags and actions; a name that is known replaces its words, an empty list ends it."""

    tags: dict[str, list[str]] = {}
    actions: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A conversation that may be stored: cleaned, with the rules of its project."""

    conversation: Conversation
    origin: str
    utterances: Sequence[Utterance]
    rules: Rules
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """The memories of a conversation in its order, how many chunks it has, and whether any memory is new."""

    memories: Sequence[Memory]
    chunks: int
    is_new: bool


class _Trace(msgspec.Struct, frozen=True):
    """What the source of a memory says of its conversation: its place, and how much there was of both."""

    place: int
    memories: int
    chunks: int


def prepare(connection: Connection, caller: Caller, conversation: Conversation) -> Prepared:
    """Check that the caller may store a conversation, and clean it.

    Raises Invalid when it is too long, Forbidden for a project out of reach, NotFound for a session that is not of it,
    and Conflict when the project's rules are not of the documented form.
    """
    if sum(len(message.content) for message in conversation.messages) > MAX_CHARACTERS:
        raise Invalid.field("body.messages", f"together at most {MAX_CHARACTERS} characters; send it in parts")
    caller.require(MEMORIES_WRITE)
    projects.require(connection, caller, conversation.project_id)
    if conversation.session_id is not None:
        sessions.require_of_project(connection, caller, conversation.session_id, conversation.project_id)
    rules = _rules(projects.get(connection, caller, conversation.project_id).metadata)
    utterances = _utterances(conversation.messages)
    origin = _origin(conversation.session_id, utterances)
    prepared = Prepared(conversation, origin, utterances, rules)
    return replace(prepared, is_known=standing(connection, caller, prepared) is not None)


def cut(prepared: Prepared, chunker: Chunker | None) -> list[Chunk]:
    """Return the chunks: by the model if there is one and the conversation is new to it, else by the rules."""
    if chunker is not None and prepared.utterances and not prepared.is_known:
        try:
            return chunking.cut_at(prepared.utterances, chunker.starts(prepared.utterances))
        except ChunkerFailed as failure:
            _log.warning("chunker_failed", reason=str(failure), project=prepared.conversation.project_id)
    actions = Vocabulary({**intent.DEFAULT_ACTIONS, **prepared.rules.actions})
    return chunking.cut(prepared.utterances, actions)


def store(connection: Connection, caller: Caller, prepared: Prepared, chunks: Sequence[Chunk]) -> Stored:
    """Store the chunks as memories; a conversation that stands already is left as it is. Raises what prepare does."""
    conversation = prepared.conversation
    if (known := standing(connection, caller, prepared)) is not None:
        return known
    tags = Vocabulary({**tagging.DEFAULT_TAGS, **prepared.rules.tags})
    added = [memories.add(connection, caller, _memory(conversation, chunk, tags)) for chunk in chunks]
    distinct = list({memory.id: memory for memory, _ in added}.values())
    _remember(connection, caller, prepared, distinct, len(chunks))
    return Stored(distinct, len(chunks), any(is_new for _, is_new in added))


def standing(connection: Connection, caller: Caller, prepared: Prepared) -> Stored | None:
    """Return what a conversation became, None when it is new or some of it was deleted since."""
    sources = owned(memory_sources, caller, memory_sources.c.memory_item_id, memory_sources.c.metadata).where(
        memory_sources.c.project_id == prepared.conversation.project_id, memory_sources.c.origin == prepared.origin
    )
    try:
        traces = [(msgspec.convert(metadata, _Trace), memory_id) for memory_id, metadata in connection.execute(sources)]
    except msgspec.ValidationError:  # somebody else's import wrote them
        return None
    if not traces or len(traces) < traces[0][0].memories:
        return None
    in_order = [memory_id for _, memory_id in sorted(traces, key=lambda trace: trace[0].place)]
    return Stored(memories.by_ids(connection, caller, in_order), traces[0][0].chunks, is_new=False)


def _rules(metadata: dict[str, Any]) -> Rules:
    try:
        return msgspec.convert(metadata.get(RULES_KEY, {}), type=Rules)
    except msgspec.ValidationError as cause:
        raise Conflict(f"The project's metadata.{RULES_KEY} is not of the documented form: {cause}") from cause


def _utterances(messages: Sequence[Message]) -> list[Utterance]:
    """Return what was said aloud. A message without a time has that of the one before it."""
    at_epoch = next((each.occurred_at_epoch for each in messages if each.occurred_at_epoch is not None), None)
    spoken = []
    for message in messages:
        at_epoch = at_epoch if message.occurred_at_epoch is None else message.occurred_at_epoch
        speaker, said = cleaning.speaker(message.role), cleaning.cleaned(message.content)
        if speaker is not None and said:
            spoken.append(Utterance(speaker, said, at_epoch))
    return spoken


def _origin(session_id: str | None, utterances: Sequence[Utterance]) -> str:
    """Return what a conversation is known by: its session and what was said, and not when or under which tags."""
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


def _remember(
    connection: Connection, caller: Caller, prepared: Prepared, stored: Sequence[Memory], chunks: int
) -> None:
    """Write down which memories a conversation became, in the place of what was known of it before."""
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
            metadata=msgspec.structs.asdict(_Trace(place, len(stored), chunks)),
            created_at_epoch=now_ms(),
        )
        _INSERT_SOURCE.run(connection, msgspec.structs.asdict(source))
