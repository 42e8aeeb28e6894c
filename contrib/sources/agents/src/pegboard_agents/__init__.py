"""Definitions of agents. Importing the package loads nothing."""
