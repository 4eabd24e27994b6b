"""The status of a reply is observed once, before the reply begins."""

import asyncio
from typing import Any

from app.api.middleware.response_status import on_status


def test_status_is_observed_just_before_the_reply_begins():
    """Every message is sent on, and only the first is observed."""
    events: list[Any] = []

    async def send(message: Any) -> None:
        events.append(message["type"])

    async def reply() -> None:
        observing = on_status(send, lambda status: events.append(status))
        await observing({"type": "http.response.start", "status": 201, "headers": []})
        for more in (True, False):
            await observing({"type": "http.response.body", "body": b"x", "more_body": more})

    asyncio.run(reply())

    assert events == [201, "http.response.start", "http.response.body", "http.response.body"]
