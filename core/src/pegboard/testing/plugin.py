"""The pytest plug-in of the kit: fixtures that build real sessions in a folder of the test's own.

It is loaded by every pytest run of an environment that holds pegboard, so it imports nothing until a fixture is used.
"""

from __future__ import annotations
