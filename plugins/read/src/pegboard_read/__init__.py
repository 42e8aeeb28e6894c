"""The Read tool: show the model one local file and record that it saw it."""
