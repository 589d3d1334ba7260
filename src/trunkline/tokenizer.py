"""Text and chats to token ids and back.

Knows no torch. Text that a user typed never becomes a control token; only the chat template's own text does.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from transformers.utils.chat_template_utils import render_jinja_template

from trunkline.detokenizer import token_bytes_of
from trunkline.errors import InvalidArgument
from trunkline.gguf_tokenizer import gguf_tokenizer_folder
from trunkline.model_store import ModelLocation

ROLES = ("system", "user", "assistant")


class Tokenizer:
    """One model's tokenizer and chat template. Thread-safe: nothing changes after load()."""

    def __init__(
        self,
        folder: Path,
        *,
        eos_token_ids: tuple[int, ...],
        chat_template: str | None,
        special_text: Mapping[str, str],
        add_bos: bool,
    ) -> None:
        """`folder` holds tokenizer.json; `special_text` has what templates may name, such as bos_token."""
        path = str(folder / "tokenizer.json")
        self._tokenizer = tokenizers.Tokenizer.from_file(path)
        # The same with control tokens read as plain text: a second object, since the switch is the object's state.
        self._plain = tokenizers.Tokenizer.from_file(path)
        self._plain.encode_special_tokens = True
        added = self._tokenizer.get_added_tokens_decoder()
        controls = sorted((t.content for t in added.values() if t.special), key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, controls)) or "(?!)")
        self._control_ids = frozenset(i for i, t in added.items() if t.special)
        self._template = chat_template
        self._special_text = dict(special_text)
        self._add_bos = add_bos
        self._bytes = token_bytes_of(self._tokenizer)
        self.eos_token_ids = eos_token_ids

    @classmethod
    def load(cls, location: ModelLocation) -> Tokenizer:
        """Raises InvalidArgument for a tokenizer that is missing or not supported."""
        path = location.path
        folder = gguf_tokenizer_folder(path) if path.suffix == ".gguf" else path
        if not (folder / "tokenizer.json").is_file():
            raise InvalidArgument("model", f"{folder} holds no tokenizer.json")
        settings = _read_json(folder / "tokenizer_config.json")
        return cls(
            folder,
            eos_token_ids=_eos_ids(folder),
            chat_template=_chat_template(folder, settings),
            special_text=_special_text(settings),
            add_bos=bool(settings.get("add_bos_token", False)),
        )

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Plain text to ids; control tokens in it stay text. A BOS token comes first only where the model wants one."""
        ids = self._plain.encode(text, add_special_tokens=False).ids
        if self._add_bos:
            bos = self._tokenizer.token_to_id(self._special_text.get("bos_token", ""))
            return ids if bos is None else [bos, *ids]
        return ids

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Messages (role, content) through the model's chat template, up to where the assistant is to speak."""
        _check_messages(messages)
        if self._template is None:
            raise InvalidArgument("chat", "this model has no chat template; send text or token ids")
        if not any(self._controls.search(m["content"]) for m in messages):
            return self._encode_controls(self._render(messages))
        return self._render_with_typed_controls(messages)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Ids to text without control tokens; broken UTF-8 shows as U+FFFD."""
        return b"".join(self.token_bytes(i) for i in token_ids).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text: nothing for control tokens and ids beyond the vocabulary."""
        if token_id in self._control_ids:
            return b""
        return self._bytes.get(token_id, b"")

    # -- inside

    def _encode_controls(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _render_with_typed_controls(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """A control token that a user typed passes the template as a mark nobody can guess, and is then plain text."""
        nonce = secrets.token_hex(8)
        typed: list[str] = []

        def mark(match: re.Match[str]) -> str:
            typed.append(match[0])
            return f"\ue000{nonce}:{len(typed) - 1}\ue001"

        marked = [{**m, "content": self._controls.sub(mark, m["content"])} for m in messages]
        pieces = re.split(f"\ue000{nonce}:(\\d+)\ue001", self._render(marked))
        ids: list[int] = []
        for i, piece in enumerate(pieces):
            is_mark = i % 2 == 1
            ids += (
                self._plain.encode(typed[int(piece)], add_special_tokens=False).ids
                if is_mark
                else (self._encode_controls(piece))
            )
        return ids

    def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        try:
            special: dict[str, Any] = dict(self._special_text)
            rendered: Any = render_jinja_template(
                conversations=[[dict(m) for m in messages]],
                chat_template=self._template,
                add_generation_prompt=True,
                **special,
            )
        except Exception as error:  # a template may raise anything; it is the model's code, about the user's messages
            raise InvalidArgument("chat.messages", f"the model's chat template refused them: {error}") from error
        while not isinstance(rendered, str):
            rendered = rendered[0]
        return rendered


def _check_messages(messages: Sequence[Mapping[str, str]]) -> None:
    if not messages:
        raise InvalidArgument("chat.messages", "must not be empty")
    for i, message in enumerate(messages):
        if message["role"] not in ROLES:
            known = ", ".join(ROLES)
            raise InvalidArgument(f"chat.messages[{i}].role", f"must be one of {known}, not {message['role'][:40]!r}")


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    separate = folder / "chat_template.jinja"
    if separate.is_file():
        return separate.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several by name
        template = next((t["template"] for t in template if t.get("name") == "default"), None)
    return template


def _special_text(settings: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = settings.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if text:
            found[name] = text
    return found


def _eos_ids(folder: Path) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        found = _read_json(folder / name).get("eos_token_id")
        if found is not None:
            return tuple(found) if isinstance(found, list) else (found,)
    return ()
