"""Provider for chat completions. Importing the package loads nothing."""
