"""Tokens of feeds' clients: JSON Web Tokens that name a user and its permitted topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.errors import InvalidInput, NotConfigured
from fairbox.model.feed_types import MAX_TOPICS, split_topic
from fairbox.model.messages import MAX_KEY_BYTES, check_text, check_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jwt.types import Options

MAX_TTL: Final = 300
"""Seconds for which a token may be valid."""
MAX_TOKEN: Final = 4096
"""Characters of a token, which a client sends as a header."""
_ALGORITHM: Final = "HS256"
_SKEW: Final = 5  # seconds by which clocks may differ


class TokenKeys(Protocol):
    """The keys that sign tokens: today's, and the one before it, by their ids."""

    def current(self) -> tuple[str, str]:
        """Return the id of today's key, and the key."""
        ...

    def find(self, id_: str) -> str | None:
        """Return a valid key by its id."""
        ...


@dataclass(frozen=True, slots=True)
class Claims:
    """The content of a token.

    Attributes:
        user: its holder; 1 to 256 bytes of text.
        allow: topics that the user may follow, each named `feed/key`; `feed/*` is all topics of a
            feed that is not private.

    Raises:
        InvalidInput: a field has an invalid value.
    """

    user: str
    allow: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.user or check_text("user", self.user) is None:
            raise InvalidInput("user", f"1 to {MAX_KEY_BYTES} bytes of text")
        if not 1 <= len(self.allow) <= MAX_TOPICS:
            raise InvalidInput("allow", f"1 to {MAX_TOPICS} topics, 'feed/key' or 'feed/*'")
        for grant in self.allow:
            _check_grant(grant)


def _check_grant(grant: str) -> None:
    try:
        if isinstance(grant, str) and grant.endswith("/*"):
            check_topic(grant[:-2], field_name="feed")
        else:
            split_topic(grant)
    except InvalidInput as error:
        raise InvalidInput("allow", f"'feed/key' or 'feed/*'; in {grant!r}, {error}") from None


def make_token(keys: TokenKeys, user: str, allow: Sequence[str], ttl: int, now: float) -> str:
    """Return a token that is valid for `ttl` seconds, 1 to 300.

    Raises:
        InvalidInput: a field has an invalid value.
        NotConfigured: PyJWT is not installed.
    """
    claims = Claims(user, tuple(allow))
    if type(ttl) is not int or not 1 <= ttl <= MAX_TTL:
        raise InvalidInput("ttl", f"a whole number of seconds from 1 to {MAX_TTL}")
    try:
        import jwt  # noqa: PLC0415 - an extra, which only tokens need
    except ImportError:
        raise NotConfigured("package PyJWT (install Fairbox with its extra 'feeds')") from None

    id_, key = keys.current()
    payload = {"sub": user, "allow": list(claims.allow), "exp": int(now) + ttl}
    token: str = jwt.encode(payload, key, algorithm=_ALGORITHM, headers={"kid": id_})
    if len(token) > MAX_TOKEN:
        expected = f"fewer or shorter names: the token has {len(token)} characters of {MAX_TOKEN}"
        raise InvalidInput("allow", expected)
    return token


def check_token(keys: TokenKeys, token: str, now: float) -> Claims | None:
    """Return the claims of a token; None: it is malformed, forged, too old, or valid for too long.

    Raises:
        Unavailable: the keys cannot be read.
    """
    import jwt  # noqa: PLC0415 - as above

    try:
        id_ = jwt.get_unverified_header(token).get("kid")
        # from a header that is not verified: it only names the key that verifies the rest
        key = keys.find(id_) if isinstance(id_, str) else None
        if key is None:
            return None
        # the time is compared below, with this process's clock
        options: Options = {"require": ["exp", "sub", "allow"], "verify_exp": False}
        payload = jwt.decode(token, key, algorithms=[_ALGORITHM], options=options)
        # bounded above too: whoever has the key could make tokens for years
        if not now < payload["exp"] <= now + MAX_TTL + _SKEW:
            return None
        return Claims(payload["sub"], tuple(payload["allow"]))
    except (jwt.InvalidTokenError, InvalidInput, TypeError):
        return None
