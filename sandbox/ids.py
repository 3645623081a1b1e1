"""Identifiers shaped like Stripe's: a prefix, an underscore and 24 random letters and digits."""

from __future__ import annotations

import os

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH = 24


def new_id(prefix: str) -> str:
    number = int.from_bytes(os.urandom(LENGTH))
    letters = []
    for _ in range(LENGTH):
        number, position = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[position])
    return prefix + "_" + "".join(letters)
