"""/v1/conversations: chats between people and agents, stored as memories."""

import asyncio
from functools import partial
from typing import Annotated

from litestar import Response, Router, post
from litestar.params import JSONBody
from msgspec import Meta

from app.api.http.idempotency import PostResult, run_once
from app.api.http.request import ApiRequest
from app.api.http.schemas import EpochMs, Id, Label, Text, Wire, to_view
from app.api.routes.memories import MemoryView
from app.caller import MEMORIES_WRITE
from app.retrieval.chunking import Chunk
from app.services.memories import conversations, memories
from app.services.memories.conversations import MAX_MESSAGES, MAX_TAGS, Conversation, Message, PreparedConversation
from app.store.records import Memory


class ConversationMessage(Wire, frozen=True, kw_only=True):
    """One message. Messages with the role `system` or `developer` are ignored."""

    role: Label
    content: Text
    occurred_at_epoch: EpochMs | None = None


class ConversationCreate(Wire, frozen=True, kw_only=True):
    """Messages in order. `tags` are added to every memory, on top of the tags from the project's rules."""

    project_id: Id
    messages: Annotated[list[ConversationMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    session_id: Id | None = None
    tags: Annotated[list[Label], Meta(max_length=MAX_TAGS)] | None = None


class ConversationStored(Wire, frozen=True, kw_only=True):
    """The memories made from a conversation, in its order, and the number of chunks it was split into."""

    memories: list[MemoryView]
    chunks: int


@post("/conversations", operation_id="createConversation", scope=MEMORIES_WRITE, idempotent=True, also_200=True)
async def create_conversation(request: ApiRequest, data: JSONBody[ConversationCreate]) -> Response[ConversationStored]:
    """Store a conversation as memories, one per chunk, all or none. Sending it again returns the same ones with 200.

    Private and internal regions, system prompts and formatting are removed; if nothing is left, nothing is stored.
    A question stays with its answer, and a request for action (a refund, a renewal) starts a new chunk. Tags become
    concepts. `conversationRules` in the project's metadata adds keywords: `{"tags": {"finance": ["invoice"]},
    "actions": {"escalate": ["escalate"]}}`; an empty list disables a rule. 409 if the rules are malformed.
    """
    # an LLM may take seconds: call it between the transactions, on a thread that no other request waits for
    prepared = await request.app_state.thread_pools.read(partial(_prepare, request, data))
    chunks = await asyncio.to_thread(conversations.cut, prepared, request.app_state.chunker)
    return await request.app_state.thread_pools.write(partial(_store, request, prepared, chunks))


router = Router("/", route_handlers=[create_conversation], tags=["memories"])


def _prepare(request: ApiRequest, data: ConversationCreate) -> PreparedConversation:
    conversation = Conversation(
        project_id=data.project_id,
        messages=[Message(message.role, message.content, message.occurred_at_epoch) for message in data.messages],
        session_id=data.session_id,
        tags=data.tags or (),
    )
    with request.database.read() as connection:
        return conversations.prepare(connection, request.caller, conversation)


def _store(request: ApiRequest, prepared: PreparedConversation, chunks: list[Chunk]) -> Response[ConversationStored]:
    def perform() -> PostResult[ConversationStored]:
        stored = conversations.store(connection, request.caller, prepared, chunks)
        ids = [memory.id for memory in stored.memories]
        return PostResult(ids, 201 if stored.is_new else 200, _reply(list(stored.memories), stored.chunks))

    def replay(ids: list[str]) -> ConversationStored:
        rows = [memories.get(connection, request.caller, memory_id) for memory_id in ids]
        existing = conversations.find_stored(connection, request.caller, prepared)
        return _reply(rows, existing.chunks if existing else len(rows))

    with request.database.write() as connection:
        return run_once(request, connection, perform=perform, replay=replay)


def _reply(stored: list[Memory], chunks: int) -> ConversationStored:
    return ConversationStored(memories=[to_view(MemoryView, memory) for memory in stored], chunks=chunks)
