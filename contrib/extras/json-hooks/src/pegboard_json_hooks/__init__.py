"""Hooks from settings, with the JSON contract that users already have. Importing the package loads nothing."""
