"""Receipts as texts: what they may begin with, and that they come back as they were."""

from __future__ import annotations

from typing import get_args

import pytest
from fairbox import InvalidInput, MessageRef
from fairbox.model.receipts import TOKEN_BYTES, ClaimPlace, Receipt
from hypothesis import given
from hypothesis import strategies as st

REF = MessageRef("orders", 0, 3, "0199c82c-c000-7611-a29f-000000000000")
RECEIPTS = st.builds(
    Receipt,
    st.just(REF),
    st.sampled_from(get_args(ClaimPlace)),
    st.binary(min_size=TOKEN_BYTES, max_size=TOKEN_BYTES),
    st.integers(0, 2**45),
)


@given(RECEIPTS)
def test_a_receipt_comes_back_and_is_never_taken_for_an_option(receipt: Receipt) -> None:
    text = str(receipt)
    assert text[0].isalnum()
    assert Receipt.parse(text) == receipt


@given(RECEIPTS, st.data())
def test_a_receipt_that_was_cut_or_changed_is_refused(
    receipt: Receipt, data: st.DataObject
) -> None:
    text = str(receipt)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("aZ09-_"))
    for wrong in (text[:place], text[:place] + other + text[place + 1 :]):
        if wrong != text:
            with pytest.raises(InvalidInput, match="receipt"):
                Receipt.parse(wrong)
