"""What is read from the tables' streams."""
