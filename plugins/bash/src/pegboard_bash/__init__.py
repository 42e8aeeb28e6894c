"""The Bash tool: run a shell command."""
