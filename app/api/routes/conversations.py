"""/v1/conversations: what people and agents said to each other, as memories."""

import asyncio
from functools import partial
from typing import Annotated

from litestar import Response, Router, post
from litestar.params import JSONBody
from msgspec import Meta

from app.api.http.idempotency import Done, once
from app.api.http.request import ApiRequest
from app.api.http.schemas import EpochMs, Id, Label, Text, Wire
from app.api.routes.memories import MemoryView, memory_view
from app.caller import MEMORIES_WRITE
from app.retrieval.chunking import Chunk
from app.services.memories import conversations, memories
from app.services.memories.conversations import MAX_MESSAGES, MAX_TAGS, Conversation, Message, Prepared
from app.store.records import Memory


class ConversationMessage(Wire, frozen=True, kw_only=True):
    """What one speaker said. `system` and `developer` are not listened to."""

    role: Label
    content: Text
    occurred_at_epoch: EpochMs | None = None


class ConversationCreate(Wire, frozen=True, kw_only=True):
    """A conversation in its order. `tags` go to all its memories, beside those that the project's rules give."""

    project_id: Id
    messages: Annotated[list[ConversationMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    session_id: Id | None = None
    tags: Annotated[list[Label], Meta(max_length=MAX_TAGS)] | None = None


class ConversationStored(Wire, frozen=True, kw_only=True):
    """The memories that a conversation became, in its order, and into how many chunks it was cut."""

    memories: list[MemoryView]
    chunks: int


@post("/conversations", operation_id="createConversation", scope=MEMORIES_WRITE, idempotent=True, also_200=True)
async def create_conversation(request: ApiRequest, data: JSONBody[ConversationCreate]) -> Response[ConversationStored]:
    """Store a conversation as memories, one a chunk, all or none; sent again, it is the same memories, with 200.

    Private and internal regions, system prompts and decoration are left out; when nothing is left, nothing is stored.
    Questions stay with their answers, and a request for action (a refund, a renewal) begins a chunk. Tags become
    concepts. `conversationRules` in the project's metadata adds words: `{"tags": {"finance": ["invoice"]}, "actions":
    {"escalate": ["escalate"]}}`; an empty list ends a rule. 409 when they are not of that form.
    """
    # the model may take seconds: it is asked between the transactions, in none of the threads that others wait for
    prepared = await request.parts.workers.read(partial(_prepare, request, data))
    chunks = await asyncio.to_thread(conversations.cut, prepared, request.parts.chunker)
    return await request.parts.workers.write(partial(_store, request, prepared, chunks))


router = Router("/", route_handlers=[create_conversation], tags=["memories"])


def _prepare(request: ApiRequest, data: ConversationCreate) -> Prepared:
    conversation = Conversation(
        project_id=data.project_id,
        messages=[Message(each.role, each.content, each.occurred_at_epoch) for each in data.messages],
        session_id=data.session_id,
        tags=data.tags or (),
    )
    with request.database.read() as connection:
        return conversations.prepare(connection, request.caller, conversation)


def _store(request: ApiRequest, prepared: Prepared, chunks: list[Chunk]) -> Response[ConversationStored]:
    def act() -> Done[ConversationStored]:
        stored = conversations.store(connection, request.caller, prepared, chunks)
        ids = [memory.id for memory in stored.memories]
        return Done(ids, 201 if stored.is_new else 200, _reply(list(stored.memories), stored.chunks))

    def recall(ids: list[str]) -> ConversationStored:
        found = [memories.get(connection, request.caller, memory_id) for memory_id in ids]
        known = conversations.standing(connection, request.caller, prepared)
        return _reply(found, known.chunks if known else len(found))

    with request.database.write() as connection:
        return once(request, connection, act=act, recall=recall)


def _reply(stored: list[Memory], chunks: int) -> ConversationStored:
    return ConversationStored(memories=[memory_view(memory, MemoryView) for memory in stored], chunks=chunks)
