"""Glob: list the files whose paths match a wildcard pattern."""
