"""Puts an application together from its environment, for the functions."""
