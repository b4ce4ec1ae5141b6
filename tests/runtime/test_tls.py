"""HTTPS and tokens of the dashboard and of the metrics."""

from __future__ import annotations

import http.client
import re
import shlex
import shutil
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scaler_cluster.errors import ConfigError
from scaler_cluster.process.tls import tls_context
from tests.runtime.helpers import BOUND_S, certificate, free_port, wait_until

DASHBOARD = Path(__file__).parents[2] / "docs" / "dashboard.md"
NGINX_PATHS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
"""Where it would write to directories of the system."""
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


def ask(link: str, trusted: str | None = None, **headers: str) -> tuple[int, str]:
    """Return status and body of an answer; a certificate must be the trusted one."""
    parts = urlsplit(link)
    assert parts.hostname is not None
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=trusted)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=BOUND_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=BOUND_S)
    try:
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Set-Cookie", "") + answer.read().decode()
    finally:
        connection.close()


def test_a_dashboard_speaks_https(shell, tmp_path) -> None:
    """The link says so, the certificate is the given one, and the cookie is for HTTPS alone."""
    cert, key = certificate(tmp_path, "own")
    watched = f"tcp://127.0.0.1:{free_port()}"
    command = shell.start(f"scaler_ui {watched} --port 0 --tls-cert {cert} --tls-key {key}")
    link = command.address("dashboard at ")
    assert link.startswith("https://127.0.0.1:")

    status, cookie = ask(link, cert)

    assert status == 302
    assert "Secure" in cookie
    mine, here = cookie.partition(";")[0], link.partition("/?")[0]
    assert ask(f"{here}/", cert, Cookie=mine, Origin=here)[0] == 200
    # A page by HTTP is another one.
    assert ask(f"{here}/", cert, Cookie=mine, Origin=here.replace("s:", ":"))[0] == 403
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(link.replace("https:", "http:"))


@pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx")
def test_nginx_needs_what_the_documentation_says(shell, tmp_path, browser) -> None:
    """Behind nginx with HTTPS and a prefix, pages, their WebSocket and their forms work."""
    # Here: not every environment that comes by has Playwright.
    from tests.runtime.browser import Window

    cert, key = certificate(tmp_path, "own")
    command = shell.start("scaler_ui tcp://127.0.0.1:1 --port 0 --prefix /scaler")
    link = urlsplit(command.address("dashboard at "))
    (location,) = re.findall(r"```nginx\n(.*?)```", DASHBOARD.read_text(), re.DOTALL)
    assert location.count(":8081") == 1
    port = free_port()
    temporary = "".join(f"{one}_temp_path {tmp_path}/{one};\n" for one in NGINX_PATHS)
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {tmp_path}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary} server {{\n"
        f"listen 127.0.0.1:{port} ssl; ssl_certificate {cert}; ssl_certificate_key {key};\n"
        f"{location.replace(':8081', f':{link.port}')} }} }}\n"
    )
    proxy = shell.start(f"{shutil.which('nginx')} -e stderr -c {tmp_path}/nginx.conf")
    wait_until(lambda: is_open(port) or proxy.process.poll() is not None, "nginx does not listen")
    context = browser.new_context(ignore_https_errors=True)
    try:
        window = Window(context)
        window.excuse("403")
        page = window.open(f"https://localhost:{port}{link.path}")
        page.get_by_label("Token").fill(link.query.removeprefix("token="))
        page.get_by_role("button", name="Open").click()
        page.get_by_text("no scheduler was heard yet").wait_for()
        page.get_by_role("link", name="Settings").click()
        page.get_by_label("1 minute").check()
        page.get_by_role("button", name="Save").click()
        page.get_by_label("1 minute").and_(page.locator(":checked")).wait_for()
        cookies = {one["name"]: one for one in context.cookies()}
        complaints = window.complaints()
    finally:
        context.close()

    cookie = cookies[f"scaler_dashboard_{link.port}"]
    assert (cookie["path"], cookie["secure"], cookie["httpOnly"]) == ("/scaler", True, True)
    assert complaints == []
    assert any(one.startswith(f"wss://localhost:{port}/scaler/ws") for one in window.requests)
    assert proxy.interrupt() == 0


def is_open(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def test_metrics_speak_https_and_ask_for_a_token(shell, tmp_path) -> None:
    """Whoever does not show the token gets 401, and nothing of the cluster."""
    cert, key = certificate(tmp_path, "own")
    watched = f"tcp://127.0.0.1:{free_port()}"
    options = f"--tls-cert {cert} --tls-key {key} --token a-secret-of-ours"
    command = shell.start(f"scaler_metrics {watched} --port 0 {options}")
    link = command.address("metrics at ")
    assert link.startswith("https://127.0.0.1:")

    assert ask(link, cert)[0] == 401
    assert ask(link, cert, Authorization="Bearer another")[0] == 401
    assert ask(link, cert, Authorization="Bearer \xff")[0] == 401
    status, body = ask(link, cert, Authorization="Bearer a-secret-of-ours")
    assert status == 200
    assert "scaler_up 0.0" in body


def test_tokens_need_not_be_in_a_command_line(shell, monkeypatch) -> None:
    """The environment has them, which other users cannot see."""
    monkeypatch.setenv("SCALER_METRICS_TOKEN", "that-of-metrics-")
    monkeypatch.setenv("SCALER_DASHBOARD_TOKEN", "of-the-dashboard")
    watched = f"tcp://127.0.0.1:{free_port()}"
    dashboard = shell.start(f"scaler_ui {watched} --port 0")
    metrics = shell.start(f"scaler_metrics {watched} --port 0")

    assert dashboard.address("dashboard at ").endswith("?token=of-the-dashboard")
    link = metrics.address("metrics at ")
    assert ask(link)[0] == 401
    assert ask(link, Authorization="Bearer that-of-metrics-")[0] == 200


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("", "must have 16 characters or more"),
        ("fifteen-letters", "must have 16 characters or more"),
        ("with-a-line-feed\n", "must consist of letters, digits, -, ., _ and ~"),
        ("with spaces inside", "must consist of letters, digits, -, ., _ and ~"),
    ],
)
@pytest.mark.parametrize(
    ("command", "variable"),
    [("scaler_ui", "SCALER_DASHBOARD_TOKEN"), ("scaler_metrics", "SCALER_METRICS_TOKEN")],
)
def test_what_is_no_token_opens_nothing(shell, monkeypatch, command, variable, token, says) -> None:
    """A token that is wrong, short or empty is refused, in one line that does not show it."""
    given = shell.run(f"{command} tcp://127.0.0.1:1 --port 0 --token {shlex.quote(token)}")
    monkeypatch.setenv(variable, token)
    found = shell.run(f"{command} tcp://127.0.0.1:1 --port 0")

    for done, name in ((given, "--token"), (found, variable)):
        assert done.process.returncode == 2
        assert " at http" not in done.out
        assert done.err == f"{command}: {name} {done.err.partition(name)[2].strip()}\n"
        assert says in done.err
        assert not token or token.strip() not in done.err


def test_what_is_no_certificate_is_refused_at_the_door(shell, tmp_path) -> None:
    """A wrong pair, no key, a key that others can read, one file without the other."""
    (cert, key), (_, other) = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    with pytest.raises(ConfigError, match="are no certificate and its key: KEY_VALUES_MISMATCH"):
        tls_context((cert, other))
    with pytest.raises(ConfigError, match="cannot read"):
        tls_context((str(tmp_path / "gone.pem"), key))
    with pytest.raises(ConfigError, match="cannot read the keys in"):
        tls_context((cert, str(tmp_path / "gone.key")))
    Path(other).write_bytes("Schl\u00fcssel".encode())
    with pytest.raises(ConfigError, match="are no certificate and its key"):
        tls_context((cert, other))
    (tmp_path / "own.key").chmod(0o644)
    with pytest.raises(ConfigError, match="other users can read the keys in"):
        tls_context((cert, key))

    for name in ("scaler_ui", "scaler_metrics"):
        command = shell.run(f"{name} tcp://127.0.0.1:1 --port 0 --tls-cert {cert}")

        assert command.process.returncode == 2
        assert command.err == f"{name}: tls_cert and tls_key go together: give both, or none\n"
    file = shell.write("stack.toml", '[webui]\nreplay = "x.rec"\ntls_key = "a.key"\n')
    place = f"{file}, line 1: [webui]"
    assert f"{place}: tls_cert and tls_key go together" in shell.run(f"scaler {file}").err
