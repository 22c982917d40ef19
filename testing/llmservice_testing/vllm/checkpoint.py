"""Weights for the tiny model, as a trainer writes them after a step: a folder that vLLM loads."""

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmservice_testing.vllm.model import write_model

_VOCABULARY: Final = 320
_HIDDEN: Final = 64
_INTERMEDIATE: Final = 128
_LAYERS: Final = 2
"""As in `model.py`."""
_SPREAD: Final = 0.2
"""Of the random weights: enough for different weights to say different things."""


def write_checkpoint(folder: Path, seed: int) -> None:
    """Write the model with the random weights of this seed into a new folder (300 KB).

    Raises:
        OSError: it is there already, or cannot be written.
    """
    write_model(folder)
    source = random.Random(seed)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in _tensors():
        begin = len(data)
        is_norm = len(shape) == 1
        for _ in range(shape[0] * (1 if is_norm else shape[1])):
            # The first half of a float is a bfloat16.
            data += struct.pack("<f", 1.0 if is_norm else source.gauss(0.0, _SPREAD))[2:]
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def _tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
    square = (_HIDDEN, _HIDDEN)
    yield "model.embed_tokens.weight", (_VOCABULARY, _HIDDEN)
    for number in range(_LAYERS):
        layer = f"model.layers.{number}"
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield f"{layer}.self_attn.{part}.weight", square
        yield f"{layer}.mlp.gate_proj.weight", (_INTERMEDIATE, _HIDDEN)
        yield f"{layer}.mlp.up_proj.weight", (_INTERMEDIATE, _HIDDEN)
        yield f"{layer}.mlp.down_proj.weight", (_HIDDEN, _INTERMEDIATE)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}.{norm}.weight", (_HIDDEN,)
    yield "model.norm.weight", (_HIDDEN,)
    yield "lm_head.weight", (_VOCABULARY, _HIDDEN)
