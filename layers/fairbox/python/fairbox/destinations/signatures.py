"""Signatures of webhooks, under the name that guides import them by."""

from __future__ import annotations

from fairbox.model.webhook_signatures import parse_secret, signed_headers

__all__ = ["parse_secret", "signed_headers"]
