"""The documentation page (Swagger UI)."""

import re

import httpx

ADDRESS = re.compile(r"""(?:src|href)="([^"]+)"|url\(["']?([^"')]+)""")


def test_the_docs_page_and_its_style_refer_to_no_other_host(server):
    """The page works without internet access."""
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        page, style = http.get("/docs").text, http.get("/docs/assets/swagger-ui.css").text
        addresses = [first or second for first, second in ADDRESS.findall(page + style)]

        assert [address for address in addresses if not address.startswith(("/docs/assets/", "data:", "#"))] == []
        assert {http.get(address).status_code for address in addresses if address.startswith("/")} == {200}


def test_the_policy_forbids_requests_to_other_hosts(server):
    """Scripts are only the server's own, whatever other addresses they may contain."""
    policy = httpx.get(f"{server.url}/docs", trust_env=False).headers["Content-Security-Policy"]
    sources = {source for directive in policy.split(";") for source in directive.split()[1:]}

    assert {source for source in sources if not source.startswith("'")} == {"data:"}
    assert "default-src 'none'" in policy
