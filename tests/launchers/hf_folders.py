"""Small model folders as Hugging Face lays them out, without sense in the weights."""

import json
from collections.abc import Sequence
from pathlib import Path

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 128}
EAGLE3 = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 640}
MEDUSA = {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": 128, "medusa_num_heads": 4}
MTP = {**LLAMA, "architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 2}


def write_folder(path: Path, config: dict[str, object], tensors: Sequence[str] = ("lm_head.weight",)) -> Path:
    """A folder with this config.json and a safetensors file that names these tensors."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    header = json.dumps(
        {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in tensors}
    ).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    return path
