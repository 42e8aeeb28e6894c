"""What runs beside the conversation: the registry of background runs, their output, and process trees that die."""
