"""The tests' own guard: nothing leaves this machine, and local servers can be reached."""

import socket
import urllib.request

import pytest


@pytest.mark.parametrize("host", ["example.org", b"example.org", "192.0.2.1", "2001:db8::1"])
def test_reaching_out_fails_the_test(host):
    with pytest.raises(pytest.fail.Exception, match="must not leave this machine"):
        socket.create_connection((host, 80), timeout=1)


def test_clients_that_swallow_errors_do_not_swallow_the_guard():
    def fetch_or_do_without():
        try:
            return urllib.request.urlopen("http://example.org", timeout=1)
        except Exception:
            return None

    with pytest.raises(pytest.fail.Exception):
        fetch_or_do_without()


def test_local_servers_can_be_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=5).close()
