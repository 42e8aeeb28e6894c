"""Grep: find lines in files by regular expression."""
