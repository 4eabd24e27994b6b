"""The benchmark of several workers, small: it runs, and nothing fails in it."""

from tests.bench import workers


def test_it_measures_and_no_request_fails():
    """How fast it is depends on the machine; that both answer everything does not."""
    rows = {row.what: row for row in workers.run(0.05)}

    assert rows["failed requests"].ratio == 0
    assert all(row.ratio >= 0 for row in rows.values())
