"""The application of the functions, put together from its environment."""
