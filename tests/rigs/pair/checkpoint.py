"""The files beside the weights, in the layout that engines load."""

from tests.rigs.pair.corpus import BOS, EOS
from tests.rigs.pair.model import (
    DRAFT_INTERMEDIATE,
    DRAFT_VOCABULARY,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    LAYERS,
    NORM_EPS,
    POSITIONS,
    ROPE_THETA,
    VOCABULARY,
)

_SHARED = {
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "max_position_embeddings": POSITIONS,
    "mlp_bias": False,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": NORM_EPS,
    "rope_theta": ROPE_THETA,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": VOCABULARY,
}
_TARGET_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    **_SHARED,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
}
# No eagle_config: for 8 layers both engines' default is what the head was trained on.
HEAD_CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    **_SHARED,
    "draft_vocab_size": DRAFT_VOCABULARY,
    "intermediate_size": DRAFT_INTERMEDIATE,
    "num_hidden_layers": 1,
}
# Prompts are meant for the completions endpoint; the template only lets a chat request through.
_CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
TARGET_FILES = {
    "config.json": _TARGET_CONFIG,
    "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS, "do_sample": False},
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": POSITIONS,
        "chat_template": _CHAT_TEMPLATE,
    },
}
