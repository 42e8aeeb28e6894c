"""Instruction files for the model. Importing the package loads nothing."""
