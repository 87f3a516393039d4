"""The HTTP API: requests to use cases, answers and refusals, and its OpenAPI document.

Pydantic is used here and nowhere else: models at the edge, dataclasses inside.
"""
