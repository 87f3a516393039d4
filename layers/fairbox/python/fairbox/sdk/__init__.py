"""The AWS SDK: its clients with bounded waiting, and its errors as this library's."""
