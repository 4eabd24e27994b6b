"""The shape of every error: RFC 9457 problem details."""

import httpx

KEYS = {"type", "title", "status", "detail", "instance", "error", "message", "issues", "requestId"}


def code_of(reply: httpx.Response) -> tuple[int, str]:
    """Return the status and code of an error, after checking its shape."""
    assert reply.headers["content-type"] == "application/problem+json", reply.text
    body = reply.json()
    assert body.keys() == KEYS
    assert (body["status"], body["message"]) == (reply.status_code, body["detail"])
    assert body["requestId"] == reply.headers["x-request-id"]
    return reply.status_code, body["error"]
