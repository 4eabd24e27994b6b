"""Observing the status of a reply on its way out."""

from collections.abc import Callable

from litestar.types import Message, Send


def on_status(send: Send, callback: Callable[[int], object]) -> Send:
    """Return a `send` that calls `callback` with the status of the reply, just before the reply begins."""

    async def observing_send(message: Message) -> None:
        if message["type"] == "http.response.start":
            callback(message["status"])
        await send(message)

    return observing_send
