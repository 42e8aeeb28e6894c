"""ToolSearch: how the model loads tools that it knows by name only. Importing the package loads nothing."""
