"""HTTP for providers. Importing the package loads nothing."""
