"""Files of a backup under a key: AES-256-GCM in chunks, so that no file has to fit into memory.

    magic 8 bytes | id of the key 8 | salt 16 | chunks, each its bytes and 16 of their tag

Every file has a key of its own, by HKDF of the site's key and the salt, so chunks are numbered from
0 and no nonce is used twice. The nonce of the last chunk says that it is the last: a file that was
cut short is refused like one that was changed. The name of the file is authenticated with each
chunk: two files of a target cannot be exchanged.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAGIC = b"CONCORD1"
CHUNK = 1 << 20
TAG = 16
HEAD = len(MAGIC) + 8 + 16
KEY_BYTES = 32


class EncryptionError(ValueError):
    """A key that is none, the wrong key, or a file that was changed or cut short."""


class Key:
    """The site's key of backups."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise EncryptionError(f"a key has {KEY_BYTES} bytes, this one has {len(secret)}")
        self._secret = secret
        self.id = self._digest(b"id")[:8]

    @classmethod
    def read(cls, path: Path) -> "Key":
        """Of a file with 32 bytes in base64, such as `openssl rand -base64 32` writes."""
        try:
            text = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise EncryptionError(f"BACKUP_KEY_FILE {path} cannot be read: {error}") from error
        try:
            secret = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        except ValueError:  # binascii's own is one
            secret = b""
        if len(secret) != KEY_BYTES:
            raise EncryptionError(
                f"BACKUP_KEY_FILE {path} must hold {KEY_BYTES} bytes in base64, as"
                " `openssl rand -base64 32` writes them"
            )
        return cls(secret)

    def name_of(self, sha256: str) -> str:
        """What stands for a content's hash where others may read names: it tells them nothing."""
        return self._digest(b"name:" + sha256.encode()).hex()

    def _digest(self, text: bytes) -> bytes:
        return hmac.digest(self._secret, b"concord backup " + text, hashlib.sha256)

    def cipher(self, salt: bytes) -> AESGCM:
        derived = HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"concord backup file")
        return AESGCM(derived.derive(self._secret))


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")


def encrypted_size(size: int) -> int:
    """Bytes of the file that `size` bytes become."""
    return HEAD + size + TAG * max(1, -(-size // CHUNK))


def encrypted(blocks: Iterator[bytes], key: Key, name: str) -> Iterator[bytes]:
    """The bytes of the file `name`, of a stream of plain ones."""
    salt = os.urandom(16)
    cipher, number, waiting = key.cipher(salt), 0, bytearray()
    yield MAGIC + key.id + salt
    for block in blocks:
        waiting += block
        while len(waiting) > CHUNK:  # not >=: the last chunk is told by its nonce
            yield cipher.encrypt(_nonce(number, False), bytes(waiting[:CHUNK]), name.encode())
            del waiting[:CHUNK]
            number += 1
    yield cipher.encrypt(_nonce(number, True), bytes(waiting), name.encode())


def decrypted(file: IO[bytes], key: Key | None, name: str) -> Iterator[bytes]:
    """The plain bytes of what `encrypted` wrote. A chunk is given only after its tag was compared.
    Raises `EncryptionError`."""
    head = file.read(HEAD)
    if len(head) < HEAD or not head.startswith(MAGIC):
        raise EncryptionError(f"{name} is no encrypted file of a backup")
    key_id, salt = head[8:16], head[16:]
    if key is None:
        raise EncryptionError(f"{name} is encrypted (key {key_id.hex()}): set BACKUP_KEY_FILE")
    if key_id != key.id:
        raise EncryptionError(
            f"{name} is encrypted with another key: its key is {key_id.hex()}, that of"
            f" BACKUP_KEY_FILE is {key.id.hex()}"
        )
    cipher, number, chunk = key.cipher(salt), 0, _read(file)
    while True:
        following = _read(file)
        try:
            yield cipher.decrypt(_nonce(number, not following), chunk, name.encode())
        except InvalidTag as error:
            raise EncryptionError(f"{name} was changed or cut short") from error
        if not following:
            return
        number, chunk = number + 1, following


def _read(file: IO[bytes]) -> bytes:
    """A whole chunk, or what is left: an object store may give less than it was asked for."""
    parts, missing = [], CHUNK + TAG
    while missing and (part := file.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
