"""The Write tool: create a file, or replace the whole content of one."""
