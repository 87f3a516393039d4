"""Keys for webhooks, as `make up` takes them."""

from __future__ import annotations

import pytest

from local.webhooks import keys_of
from local.workspace import LocalError

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_subscription_may_have_two_keys_while_they_change() -> None:
    other = "whsec_" + "A" * 32
    found = keys_of(f"a/b={KEY},c/d={other},a/b={other}")
    assert found == {"a/b": [KEY, other], "c/d": [other]}
    assert keys_of("") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a/b=whsec_short", "a/b: secret: expected whsec_ and the base64"),
        (KEY, "expected TOPIC/SUBSCRIPTION=whsec_"),
        (f"b={KEY}", "expected TOPIC/SUBSCRIPTION=whsec_"),
    ],
)
def test_what_is_no_pair_is_refused_without_the_key(text: str, said: str) -> None:
    with pytest.raises(LocalError) as refused:
        keys_of(text)
    assert said in str(refused.value)
    assert "short" not in str(refused.value)
    assert KEY not in str(refused.value)
