"""Tiny models of each family that transformers knows, made here with random weights, and a tokenizer for them."""

import pytest

TEMPLATE = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content | trim }}
{{- '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
TRAINING = (
    "The old tower of the city opened in 1835. Who built it? Nobody knows, but the keeper of the river market does."
)
WINDOW = 24
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
SLIDING = {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 2}
SOFT = {"query_pre_attn_scalar": 8, "sliding_window": WINDOW}
FAMILIES = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen2-sliding": ("Qwen2", SLIDING),
    "qwen3": ("Qwen3", {}),
    "qwen3-sliding": ("Qwen3", SLIDING),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", {**SOFT, "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0}),
    "gemma3": ("Gemma3", {**SOFT, "layer_types": ["sliding_attention", "full_attention"] * 2}),
}
"""Name -> transformers' prefix and what differs from ``SIZES``."""


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A byte-level vocabulary with a chat template that trims what it writes."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([TRAINING], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=special[1], additional_special_tokens=special
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer):
    """family, attention, dtype -> a model that is always the same."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    def make(family, *, attention=None, dtype="float32", **options):
        prefix, changes = FAMILIES[family]
        config = getattr(transformers, f"{prefix}{'TextConfig' if family == 'gemma3' else 'Config'}")
        torch.manual_seed(0)
        made = config(vocab_size=len(tiny_tokenizer), **{**SIZES, **changes, **options})
        made._attn_implementation = attention
        return getattr(transformers, f"{prefix}ForCausalLM")(made).eval().to(getattr(torch, dtype))

    return make


@pytest.fixture(scope="session")
def tiny_engine(tiny_model, tiny_tokenizer):
    """family, options of the engine -> an engine around such a model."""
    from attr_core.engines.huggingface import HuggingFaceEngine

    def make(family, *, dtype="float32", attention=None, **options):
        return HuggingFaceEngine(tiny_model(family, dtype=dtype, attention=attention), tiny_tokenizer, **options)

    return make
