"""Concurrent writers in a separate process: python -m tests.bench.writers URL KEY PROJECT CONNECTIONS COUNT."""

import json
import sys

from tests.bench import load, texts


def main() -> None:
    """Store `COUNT` different memories over `CONNECTIONS` connections at once, without pausing."""
    url, key, project_id, connections, count = sys.argv[1:]
    items = texts.memories(int(count), seed=4)
    posts = (
        load.request("POST", "/v1/memories", key=key, body=json.dumps({**item, "projectId": project_id}).encode())
        for item in items
    )
    load.run(url, posts, count=int(count), connections=int(connections))


if __name__ == "__main__":
    main()
