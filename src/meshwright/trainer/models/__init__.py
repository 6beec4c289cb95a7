"""The decoder that tests and demos train, and the table of families."""
