"""No secret and no token ends up in a log or a file, whatever a key is used for."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from app.services.identity import credentials
from tests.api.routes.test_auth import forge

SIGNING_SECRET = "kw3vN8Qz1LxTfR5yUo9pDg7sHj2mBc4A"
MEMORY = "xylophone quartz zeppelin"


@contextmanager
def serve_with_log(folder: Path, log: Path) -> Iterator[str]:
    """Run a server that logs everything; yield what it prints at the start: its address and the first key."""
    environment = {
        **os.environ,
        "CMEM_DATA_DIR": str(folder),
        "CMEM_VECTORS": "off",
        "CMEM_LOG_LEVEL": "DEBUG",
        "CMEM_LOG_FORMAT": "json",
        "CMEM_AUDIT_READS": "1",
        "CMEM_RATE_LIMIT_PER_MIN": "1000",
        "CMEM_JWT_SECRET": SIGNING_SECRET,
    }
    announced = log.with_suffix(".out")
    command = [sys.executable, "-m", "app", "serve", "--port", "0"]
    with log.open("w") as errors, announced.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=errors)
        try:
            deadline = time.monotonic() + 60
            while "export URL" not in announced.read_text() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield announced.read_text()
        finally:
            process.terminate()
            process.wait(timeout=30)


def use_every_secret(http: httpx.Client, first_key: str, project: str) -> list[str]:
    """Send requests that involve every kind of secret; return the secrets."""
    created = http.post("/v1/keys", json={"name": "ci"}, headers={"Idempotency-Key": "once"}).json()
    http.post("/v1/keys", json={"name": "ci"}, headers={"Idempotency-Key": "once"})
    rotated = http.post(f"/v1/keys/{created['id']}/rotate", json={"overlapSeconds": 60}).json()
    token = http.post("/v1/auth/token", json={}, headers={"Idempotency-Key": "two"}).json()["accessToken"]
    unknown = credentials.format_key(credentials.mint())
    wrong = credentials.format_key(forge(first_key))
    texts = [
        created["apiKey"],
        rotated["apiKey"],
        token,
        unknown,
        wrong,
        token[:-4] + "AAAA",
        "cmem_mistyped_secret12345",
    ]
    for text in texts:
        httpx.get(f"{http.base_url}/v1/memories", headers={"Authorization": f"Bearer {text}"}, trust_env=False)
        httpx.get(f"{http.base_url}/v1/memories", headers={"X-Api-Key": text}, trust_env=False)
        http.get("/v1/memories", params={"apiKey": text})
        http.get(f"/v1/memories/{text}")
        http.post("/v1/memories", content=text.encode(), headers={"Content-Type": "application/json"})
        http.post("/v1/memories", json={"projectId": text, "content": "x"})
        http.post("/v1/memories", json={"projectId": project, "unknown": text})
    http.post("/v1/search", json={"projectId": project, "query": MEMORY})
    http.delete(f"/v1/keys/{created['id']}")
    return [first_key, *texts]


def secret_part(text: str) -> str:
    """Return the secret of a key, or the signature of a token, which may contain underscores itself."""
    return text.rsplit("." if "." in text else "_", 1)[-1]


def test_no_secret_is_in_any_log_or_file(tmp_path: Path):
    """Neither valid nor invalid keys and tokens, nor the signing secret; and no search query in the log."""
    folder, log = tmp_path / "data", tmp_path / "server.log"
    with serve_with_log(folder, log) as announced:
        address, key, project = (re.search(rf"{name}=(\S+)", announced).group(1) for name in ("URL", "KEY", "PROJECT"))  # type: ignore[union-attr]
        with httpx.Client(base_url=address, headers={"X-Api-Key": key}, trust_env=False) as http:
            secrets_sent = use_every_secret(http, key, project)
            assert http.get("/v1/auth/whoami").status_code == 200
        written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    stored = written + b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    lines = log.read_text()

    secrets = {secret for text in secrets_sent for secret in (text, secret_part(text))} | {SIGNING_SECRET}
    assert [secret for secret in secrets if secret.encode() in stored] == []
    assert [secret for secret in secrets if secret in lines] == []
    assert MEMORY.split()[0] not in lines
    assert len(lines.splitlines()) > 40
    assert all(json.loads(line) for line in lines.splitlines())
