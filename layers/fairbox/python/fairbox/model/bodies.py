"""Bodies: compression, and the choice between item and claim check."""

from __future__ import annotations

import zlib
from typing import Final, Protocol

from fairbox.errors import InvalidInput
from fairbox.model.messages import MAX_BODY_BYTES

COMPRESS_OVER: Final = 512  # shorter bodies are stored as they are
OFFLOAD_OVER: Final = 300_000  # leaves room in 400 KB for headers, keys and the failure history
ARCHIVED_UP_TO: Final = 600_000  # what an archive line takes in base64, 1,000 KiB in all
_LEVEL: Final = 6


class BodyStore(Protocol):
    """The store of bodies that do not fit an item."""

    bucket: str

    def put(self, key: str, body: bytes, content_type: str) -> None:
        """Store the body under the key; again is the same."""
        ...

    def get(self, bucket: str, key: str) -> bytes:
        """Return the body."""
        ...

    def expire(self, bucket: str, key: str) -> None:
        """Make the store's life cycle delete the body after its retention."""
        ...


def compress(body: bytes) -> tuple[bytes, bool]:
    """Return the bytes to store, and whether they are compressed; never longer than the body."""
    packed = zlib.compress(body, _LEVEL)
    return (packed, True) if len(packed) < len(body) else (body, False)


def decompress(packed: bytes, size: int) -> bytes:
    """Return the body of `size` bytes that `compress` packed.

    Raises:
        InvalidInput: the bytes are no such body; nothing over `size` bytes is ever unpacked, and
            nothing at all where a message holds no so large a body.
    """
    if size > MAX_BODY_BYTES:
        raise InvalidInput("body", f"at most {MAX_BODY_BYTES} bytes")

    unpack = zlib.decompressobj()
    try:
        # to zlib, a limit of 0 means none
        body = unpack.decompress(packed, size) if size else unpack.decompress(packed, 1)
        # one byte more shows that the stream is longer than it was said to be
        more = unpack.decompress(unpack.unconsumed_tail, 1)
    except (zlib.error, ValueError, OverflowError) as error:
        raise InvalidInput("body", f"a zlib stream ({error})") from None

    # `eof`: a stream that is cut short has no check of its bytes
    if len(body) != size or more or not unpack.eof:
        raise InvalidInput("body", f"a zlib stream of {size} bytes")
    return body
