"""The tokenizer inside a GGUF file, converted once into the files that Hugging Face's tokenizers read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from trunkline.errors import InvalidArgument
from trunkline.model_store import store_folder

CONVERSION_VERSION = 1
CONTROL = 3  # gguf.TokenType.CONTROL

_BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
#: By tokenizer.ggml.pre: how text is cut before byte pairs are merged.
_PRE_TOKENIZERS: dict[str, pre_tokenizers.PreTokenizer] = {
    "default": _BYTE_LEVEL,
    "gpt-2": _BYTE_LEVEL,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _BYTE_LEVEL]),
}


def gguf_tokenizer_folder(path: Path) -> Path:
    """A folder with tokenizer.json, tokenizer_config.json and config.json for the GGUF file at `path`.

    It is kept in the store; the file's size and time of change name it. Raises InvalidArgument for a kind of
    tokenizer that is not supported, naming it.
    """
    stat = path.stat()
    key = repr((CONVERSION_VERSION, str(path.resolve()), stat.st_size, stat.st_mtime_ns))
    folder = store_folder() / "tokenizers" / hashlib.sha256(key.encode()).hexdigest()[:32]
    if (folder / "tokenizer.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        _convert(path, scratch)
        os.replace(scratch, folder)
    except OSError:
        if not (folder / "tokenizer.json").is_file():  # else another process was first
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _convert(path: Path, folder: Path) -> None:
    import gguf

    reader = gguf.GGUFReader(path)

    def field(name: str, default: Any = None) -> Any:
        found = reader.fields.get(name)
        return default if found is None else found.contents()

    kind, pre = field("tokenizer.ggml.model"), field("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise InvalidArgument("model", f"the GGUF tokenizer {kind}/{pre} is not supported; use a safetensors folder")
    tokens: list[str] = field("tokenizer.ggml.tokens")
    tokenizer = _byte_pair(tokens, field("tokenizer.ggml.merges"), _PRE_TOKENIZERS[pre])
    types = field("tokenizer.ggml.token_type", [])
    controls = [token for token, token_type in zip(tokens, types, strict=False) if token_type == CONTROL]
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in controls])
    settings: dict[str, Any] = {
        "chat_template": field("tokenizer.chat_template"),
        "add_bos_token": field("tokenizer.ggml.add_bos_token", False),
    }
    for name in ("bos", "eos", "unknown", "padding"):
        token_id = field(f"tokenizer.ggml.{name}_token_id")
        if token_id is not None:
            settings[{"unknown": "unk", "padding": "pad"}.get(name, name) + "_token"] = tokens[token_id]
    eos = [field(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    config = {"eos_token_id": list(dict.fromkeys(i for i in eos if i is not None))}
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _byte_pair(tokens: list[str], merges: list[str], pre: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    pairs = [(left, right) for left, right in (merge.split(" ", 1) for merge in merges)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
