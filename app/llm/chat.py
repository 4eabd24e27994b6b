"""Client of any OpenAI-compatible chat endpoint."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import msgspec

TIME_LIMIT_SECONDS: Final = 15.0
MAX_REPLY_BYTES: Final = 1_000_000


class ChatFailed(Exception):
    """The model gave no usable reply; the text says why and quotes neither prompt nor reply."""


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """Where the model is, and with which key. The key is not part of the repr."""

    url: str
    model: str
    api_key: str = field(repr=False)


class ChatClient:
    """A remote chat model. Thread-safe."""

    def __init__(self, endpoint: ChatEndpoint, *, time_limit_seconds: float = TIME_LIMIT_SECONDS) -> None:
        headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        self._endpoint = endpoint
        self._time_limit_seconds = time_limit_seconds
        self._client = httpx.Client(headers=headers, trust_env=False)

    def complete(self, *, system: str, user: str) -> str:
        """Return the model's reply to two messages, without retries. Raises ChatFailed."""
        body = {
            "model": self._endpoint.model,
            "temperature": 0,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        }
        return _content(self._post(body))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _post(self, body: dict[str, Any]) -> bytes:
        """Return the reply's bytes. The time limit covers the whole reply, even when it arrives slowly."""
        deadline = time.monotonic() + self._time_limit_seconds
        url = f"{self._endpoint.url}/chat/completions"
        reply = bytearray()
        try:
            with self._client.stream("POST", url, json=body, timeout=self._time_limit_seconds) as response:
                if not response.is_success:
                    raise ChatFailed(f"status {response.status_code}")
                for part in response.iter_bytes():
                    reply += part
                    if time.monotonic() > deadline or len(reply) > MAX_REPLY_BYTES:
                        raise ChatFailed("the reply is too slow or too long")
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            raise ChatFailed(type(cause).__name__) from cause
        return bytes(reply)


def _content(reply: bytes) -> str:
    try:
        content = msgspec.json.decode(reply)["choices"][0]["message"]["content"]
    except (msgspec.MsgspecError, UnicodeError, LookupError, TypeError) as cause:
        raise ChatFailed("the reply is not a chat completion") from cause
    if not isinstance(content, str):
        raise ChatFailed("the reply is not a chat completion")
    return content
