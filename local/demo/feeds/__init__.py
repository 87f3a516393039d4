"""The demo of feeds: two screens, one of which stops reading."""
