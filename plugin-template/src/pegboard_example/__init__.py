"""Example: count the lines, words and bytes of one file."""
