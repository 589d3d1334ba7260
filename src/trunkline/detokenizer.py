"""Token by token back to text, whole characters only."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

import tokenizers


class IncrementalDetokenizer:
    """The text of a growing answer. What push() and flush() return, joined, is the decoding of all ids at once."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        """`token_bytes` as Tokenizer.token_bytes."""
        self._token_bytes = token_bytes
        # Holds back the first bytes of a character whose rest has not come, at most three of them.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Sequence[int]) -> str:
        """The whole characters that `token_ids` complete."""
        return self._decoder.decode(b"".join(map(self._token_bytes, token_ids)))

    def flush(self) -> str:
        """At the end: a character that never became whole, as U+FFFD."""
        return self._decoder.decode(b"", final=True)


def token_bytes_of(tokenizer: tokenizers.Tokenizer) -> dict[int, bytes]:
    """The bytes of every token. Byte-level vocabularies spell bytes as printable characters (Radford et al. 2019)."""
    to_byte = {char: byte for byte, char in _byte_characters().items()}
    added = tokenizer.get_added_tokens_decoder()
    table: dict[int, bytes] = {}
    for token, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
        if token_id in added or any(char not in to_byte for char in token):
            table[token_id] = _spelled_out(token)
        else:
            table[token_id] = bytes(to_byte[char] for char in token)
    return table


def _spelled_out(token: str) -> bytes:
    """SentencePiece's spelling: <0x0A> is a byte, U+2581 a space; else the text itself."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def _byte_characters() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte: itself if it is printable Latin-1, else the next unused from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}
