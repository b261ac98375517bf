# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a tiny model for llama.cpp that says fixed sentences, word by word.

The last token of the prompt, which the model's template chooses, begins a chain of tokens: the
output layer is a table of what follows what, and all other weights are zero.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_END = 2
_HEAD = 64
_ALIGNMENT = 32


class _Weights:
    """A matrix of zeros, to be filled."""

    def __init__(self, *shape: int, value: float = 0.0) -> None:
        """The last number of the shape is the length of a row."""
        self.shape = shape
        count = 1
        for number in shape:
            count *= number
        self.values = array("f", [value]) * count

    def set(self, row: int, column: int) -> None:
        self.values[row * self.shape[-1] + column] = 1.0


def write_chain_model(
    file: Path, chains: Mapping[str, Sequence[str]], template: str, length: int
) -> None:
    """`chains` has the pieces that follow each first token. A piece that was there before ends its
    chain, which goes on as it did there: for ever, if it was in the same chain. Every other
    character is a token."""
    tokens = [("<unk>", _UNKNOWN), ("<s>", _CONTROL), ("</s>", _CONTROL)]
    tokens += [(f"<0x{number:02X}>", _BYTE) for number in range(256)]
    known = len(tokens)
    follows: dict[int, int] = {}
    numbers: dict[str, int] = {}
    for first, pieces in chains.items():
        here = len(tokens)
        tokens.append((first, _CONTROL))
        for piece in pieces:
            if piece not in numbers:
                numbers[piece] = len(tokens)
                tokens.append((piece, _USER_DEFINED))
            follows[here] = here = numbers[piece]
        follows.setdefault(here, _END)
    size = -(-(len(tokens) - known) // _HEAD) * _HEAD
    embedding, output = _Weights(len(tokens), size), _Weights(len(tokens), size)
    for number in range(known, len(tokens)):
        embedding.set(number, number - known)
        output.set(follows[number], number - known)
    weights = {
        "token_embd": embedding,
        "output": output,
        "output_norm": _Weights(size, value=1.0),
        "blk.0.attn_norm": _Weights(size, value=1.0),
        "blk.0.ffn_norm": _Weights(size, value=1.0),
        **{f"blk.0.attn_{name}": _Weights(size, size) for name in ("q", "k", "v", "output")},
        "blk.0.ffn_gate": _Weights(_HEAD, size),
        "blk.0.ffn_up": _Weights(_HEAD, size),
        "blk.0.ffn_down": _Weights(size, _HEAD),
    }
    facts = {
        "general.architecture": "llama",
        "llama.context_length": length,
        "llama.embedding_length": size,
        "llama.block_count": 1,
        "llama.feed_forward_length": _HEAD,
        "llama.attention.head_count": size // _HEAD,
        "llama.attention.head_count_kv": size // _HEAD,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": _HEAD,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [text for text, _kind in tokens],
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": [kind for _text, kind in tokens],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": _END,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": template,
    }
    file.write_bytes(_gguf(facts, {f"{name}.weight": one for name, one in weights.items()}))


def _gguf(facts: Mapping[str, object], weights: Mapping[str, _Weights]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(facts))
    for name, value in facts.items():
        kind, data = _value(value)
        head += _text(name) + struct.pack("<I", kind) + data
    content = b""
    for name, one in weights.items():
        head += _text(name) + struct.pack("<I", len(one.shape))
        head += b"".join(struct.pack("<Q", number) for number in reversed(one.shape))
        head += struct.pack("<IQ", 0, len(content))
        content += _padded(one.values.tobytes())
    return _padded(head) + content


def _value(value: object) -> tuple[int, bytes]:
    """Return the number of a value's type, and its bytes."""
    match value:
        case bool():
            return 7, struct.pack("<?", value)
        case int():
            return 4, struct.pack("<I", value)
        case float():
            return 6, struct.pack("<f", value)
        case str():
            return 8, _text(value)
        case list():
            found = [_value(one) for one in value]
            kind = 5 if found[0][0] == 4 else found[0][0]
            return 9, struct.pack("<IQ", kind, len(found)) + b"".join(data for _, data in found)
        case _:
            raise TypeError(value)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
