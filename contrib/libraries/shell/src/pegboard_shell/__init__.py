"""Shell commands, read: what would run, what it would touch, and what cannot be known before it runs.

`parse` gives the segments of a command, `accesses` what a permission decision needs. Nothing here runs anything.
"""
