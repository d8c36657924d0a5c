"""Shared fixtures: the real small models that come as packages. Each is loaded only where a test asks for it."""

import os
import sys

import hypothesis
import pytest

# No test may reach the network, whatever it names; litellm fetches a price list when it is imported.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

# How long an example takes says how busy the machine is, not whether the code is right.
# At a desk each run looks at new examples; in CI a failure must be of the change, not of the draw.
hypothesis.settings.register_profile("desk", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")

_THIS_MACHINE = {None, "", "localhost", "127.0.0.1", "::1"}


_may_leave = False


def _refuse_the_network(event, arguments):
    if _may_leave:
        return
    if event == "socket.connect":
        host = arguments[1][0] if isinstance(arguments[1], tuple) else None  # else a Unix socket's path
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if (host.decode() if isinstance(host, bytes) else host) not in _THIS_MACHINE:
        pytest.fail(f"tests must not leave this machine, but one reached for {host}")


sys.addaudithook(_refuse_the_network)


@pytest.fixture(autouse=True)
def _only_hosted_tests_leave(request):
    global _may_leave
    _may_leave = request.node.get_closest_marker("hosted") is not None
    yield
    _may_leave = False


@pytest.fixture(autouse=True)
def _own_database_and_no_defaults(monkeypatch, tmp_path):
    """What the person who runs the tests has set or stored must neither steer them nor be touched."""
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "unnamed" / "attrkit.db"))
    for name in ("ATTRKIT_ENGINE", "ATTRKIT_JUDGE", "ATTRKIT_EMBED"):
        monkeypatch.delenv(name, raising=False)


def _packaged_engine(name):
    for package in ("torch", "transformers", "gguf"):
        pytest.importorskip(package)
    from attr_core.engines import load_engine
    from attr_core.engines.local_models import find_packaged

    if find_packaged(name) is None:
        pytest.skip(f"the package that ships {name} is not installed")
    return load_engine(f"hf:{name}")


@pytest.fixture(scope="session")
def small_engine():
    """SmolLM2-135M-Instruct, with a chat template."""
    return _packaged_engine("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma_engine():
    """Gemma 3 270M: a base model without a chat template, whose tokenizer adds <bos>."""
    return _packaged_engine("gemma-3-270m-q4_k_m.gguf")
