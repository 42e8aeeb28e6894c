"""The ripgrep engine for tools: found, started under limits, streamed.

Grep and Glob share it. The three layers stay apart: the engine matches, the runner limits, the tool presents.
"""
