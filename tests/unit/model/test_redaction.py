"""Redaction: secrets leave addresses and answers, and enough stays to find a cause."""

from __future__ import annotations

import pytest
from fairbox.model.redaction import MAX_SEARCHED, redacted_address, redacted_text, secrets_of


@pytest.mark.parametrize(
    "said",
    [
        "Authorization: AWS4-HMAC-SHA256-abcdef",
        "Bearer eyJhbGciOi.J9",
        "bearer%20eyJhbGciOi",
        "Basic dXNlcjpwYXNz",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ],
)
def test_a_credential_is_taken_out_though_nobody_sent_it(said: str) -> None:
    shown = redacted_text(f"no: {said} is wrong", [], b"")
    assert "***" in shown
    assert shown.startswith("no: ")
    assert shown.endswith(" is wrong")
    assert said.rsplit(maxsplit=1)[-1] not in shown


def test_what_says_why_stays() -> None:
    said = "field customer is missing in line 12 of order"
    assert redacted_text(said, [], b'{"customer": null, "order": 12}') == said


def test_beside_a_body_too_large_to_search_nothing_of_an_answer_stays() -> None:
    assert redacted_text("anything", [], b"x" * (MAX_SEARCHED + 1)) == "***"
    assert redacted_text(" ", [], b"x" * (MAX_SEARCHED + 1)) == " "


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://a.example/p?token=secret&x=&lone", "https://a.example/p?token=***&x=&***"),
        ("https://user:word@a.example/p", "https://***@a.example/p"),
        ("https://a.example/p", "https://a.example/p"),
        (
            "sqs:https://sqs.us-east-1.amazonaws.com/1/q",
            "sqs:https://sqs.us-east-1.amazonaws.com/1/q",
        ),
        ("topic:jobs", "topic:jobs"),
    ],
)
def test_an_address_is_shown_without_user_and_values(address: str, shown: str) -> None:
    assert redacted_address(address) == shown


def test_the_secrets_of_a_target_are_its_values_but_short_ones() -> None:
    assert secrets_of("/p?a=longer-one&b=1&c=four") == ["longer-one", "four"]
    assert secrets_of("/p") == []
