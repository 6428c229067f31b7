"""Scalars of a TensorBoard event file, without TensorBoard.

The file is a row of records: length (u64), its checksum, the record, its checksum; checksums are
CRC-32C, rotated and shifted as TFRecord wants. A record is a protobuf message `Event`, of which the
fields `step` and `summary.value.{tag, simple_value, tensor}` are read, and the rest is passed over.
A last record that breaks off is left out: that is how a file looks while it is written.
"""

import struct
from collections.abc import Iterator

from workers.diagnosis.reading.rows import Curves, Read, refused

FORMAT = "TensorBoard"
MOST_BYTES = 32 * 1024**2
_POLYNOMIAL, _MASK = 0x82F63B78, 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_HEAD = struct.Struct("<QI")
# TensorProto: dtype -> (format of tensor_content, field of its packed values)
_DTYPES = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C (Castagnoli), as TFRecord stores it."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def looks_like_events(data: bytes) -> bool:
    """Its first eight bytes match their checksum: no text does that."""
    if len(data) < _HEAD.size:
        return False
    _, crc = _HEAD.unpack_from(data)
    return masked_crc(data[:8]) == crc


def read_events(data: bytes) -> Read:
    """Raises `ReadingError` for a record whose checksum is wrong, naming it."""
    if len(data) > MOST_BYTES:
        size = len(data) / 1e6
        raise refused(
            f"The event file has {size:.0f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read. "
            "Histograms and texts take most of such a file; export its scalars as CSV."
        )
    curves, notes = Curves(), []
    for number, record in _records(data, notes):
        try:
            step, scalars = _event(record)
        except (IndexError, ValueError, struct.error, UnicodeDecodeError) as error:
            raise refused("The record is no TensorBoard event.", number) from error
        for tag, value in scalars:
            if step < 0:
                curves.error(number, f"the step of {tag!r} is {step}.")
            else:
                curves.add(number, step, tag, value)
    series, more = curves.done()
    return Read(FORMAT, series, {}, (*notes, *more))


def _records(data: bytes, notes: list[str]) -> Iterator[tuple[int, bytes]]:
    at, number = 0, 0
    while at < len(data):
        number += 1
        if at + _HEAD.size > len(data):
            break
        length, crc = _HEAD.unpack_from(data, at)
        if masked_crc(data[at : at + 8]) != crc:
            raise refused("The length of the record does not match its checksum.", number)
        start = at + _HEAD.size
        at = start + length + 4
        if at > len(data):
            break
        record = data[start : start + length]
        if masked_crc(record) != struct.unpack_from("<I", data, start + length)[0]:
            raise refused("The record does not match its checksum: the file is damaged.", number)
        yield number, record
    else:
        return
    notes.append(f"Record {number:,}, the last, breaks off and was left out.")


def _event(record: bytes) -> tuple[int, list[tuple[str, float]]]:
    """(step, [(tag, value)]) of an Event."""
    step, found = 0, []
    for field, value in _fields(record):
        if field == 2 and isinstance(value, int):
            step = value - 2**64 if value >= 2**63 else value
        elif field == 5 and isinstance(value, bytes):
            found += [
                one
                for inner, part in _fields(value)
                if inner == 1 and isinstance(part, bytes) and (one := _value(part)) is not None
            ]
    return step, found


def _value(message: bytes) -> tuple[str, float] | None:
    """(tag, number) of a Summary.Value that is a scalar; None of one that is something else."""
    tag, number = "", None
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode()
        elif field == 2 and isinstance(value, bytes):
            number = struct.unpack("<f", value)[0]
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return None if number is None else (tag, number)


def _tensor(message: bytes) -> float | None:
    """The number of a tensor that has exactly one."""
    fields = dict(_fields(message))
    layout, packed = _DTYPES.get(fields.get(1, 0), ("", 0))
    content, listed = fields.get(4), fields.get(packed)
    if not layout:
        return None
    if not content and isinstance(listed, bytes) and layout in ("<f", "<d"):
        content = listed
    if isinstance(content, bytes) and content:
        fits = len(content) == struct.calcsize(layout)
        return float(struct.unpack(layout, content)[0]) if fits else None
    if isinstance(listed, bytes) and listed:
        listed, end = _varint(listed, 0)
        if end < len(fields[packed]):
            return None
    if not isinstance(listed, int):
        return None
    return float(listed - 2**64 if listed >= 2**63 else listed)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a message's fields: varints as integers, everything else as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield field, value
            continue
        if wire == _BYTES:
            length, at = _varint(message, at)
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(wire, -1)
        if length < 0 or at + length > len(message):
            raise ValueError("a field reaches beyond its message")
        yield field, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
