"""Model folders as small as SGLang's adapter needs them, and the stand-in for SGLang itself."""

import json
from pathlib import Path
from typing import Any

STUB = Path(__file__).with_name("sglang_stub")
LLAMA = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, "vocab_size": 1024}
EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 640}


def model_folder(path: Path, config: dict[str, Any] | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config or LLAMA))
    (path / "model.safetensors").write_bytes(b"weights")
    return path
