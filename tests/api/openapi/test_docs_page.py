"""The page that shows the contract."""

import re

import httpx

ADDRESS = re.compile(r"""(?:src|href)="([^"]+)"|url\(["']?([^"')]+)""")


def test_the_docs_page_and_its_style_refer_to_no_other_host(server):
    """The page can be read without internet."""
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        page, style = http.get("/docs").text, http.get("/docs/assets/swagger-ui.css").text
        found = [first or second for first, second in ADDRESS.findall(page + style)]

        assert [address for address in found if not address.startswith(("/docs/assets/", "data:", "#"))] == []
        assert {http.get(address).status_code for address in found if address.startswith("/")} == {200}


def test_the_browser_is_told_to_ask_no_other_host(server):
    """Scripts are the server's own: the policy forbids whatever else they may hold addresses of."""
    policy = httpx.get(f"{server.url}/docs", trust_env=False).headers["Content-Security-Policy"]
    sources = {source for directive in policy.split(";") for source in directive.split()[1:]}

    assert {source for source in sources if not source.startswith("'")} == {"data:"}
    assert "default-src 'none'" in policy
