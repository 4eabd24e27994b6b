"""The chat client against a real HTTP server."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from app.llm.chat import ChatClient, ChatEndpoint, ChatFailed
from tests import chat_model
from tests.chat_model import Model


@pytest.fixture
def model() -> Iterator[Model]:
    with chat_model.serving() as running:
        yield running


def complete(url: str, *, api_key: str = "", time_limit_seconds: float = 5) -> str:
    with closing(ChatClient(ChatEndpoint(url, "small", api_key), time_limit_seconds=time_limit_seconds)) as client:
        return client.complete(system="be brief", user="hello")


def test_reply_is_the_content_of_the_first_choice(model: Model):
    """Both messages are sent, to the configured model and with the key."""
    model.content = "hi"

    assert complete(model.url, api_key="secret") == "hi"
    (request,) = model.requests
    assert request == {
        "model": "small",
        "temperature": 0,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
    }
    assert model.keys == ["Bearer secret"]


def test_no_header_is_sent_without_a_key(model: Model):
    """Local models need none."""
    complete(model.url)

    assert model.keys == [None]


@pytest.mark.parametrize("status", [401, 500])
def test_error_status_fails(model: Model, status: int):
    """The error names the status."""
    model.status = status

    with pytest.raises(ChatFailed, match=f"status {status}"):
        complete(model.url)


def test_content_that_is_no_text_fails(model: Model):
    """Some servers reply with null."""
    model.content = None  # type: ignore[assignment]

    with pytest.raises(ChatFailed, match="not a chat completion"):
        complete(model.url)


def test_closed_port_fails():
    """The error names its kind."""
    with pytest.raises(ChatFailed, match="ConnectError"):
        complete("http://127.0.0.1:9/v1")


@pytest.mark.parametrize("drip_seconds", [0.02, 5.0])
def test_time_limit_covers_the_whole_reply(model: Model, drip_seconds: float):
    """Whether the server is silent or sends single bytes."""
    model.drip_seconds = drip_seconds

    with pytest.raises(ChatFailed):
        complete(model.url, time_limit_seconds=0.2)


def test_key_is_not_part_of_the_repr():
    """So it does not end up in a log."""
    assert "secret" not in repr(ChatEndpoint("http://x", "small", "secret"))
