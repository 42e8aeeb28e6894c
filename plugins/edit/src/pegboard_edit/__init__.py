"""The Edit tool: replace an exact string in one file."""
