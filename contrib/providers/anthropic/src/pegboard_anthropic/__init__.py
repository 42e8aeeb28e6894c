"""Provider for the Anthropic Messages API. Importing the package loads nothing."""
