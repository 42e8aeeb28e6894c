"""The sandbox on Linux. Importing this loads nothing; `pegboard_bubblewrap.confinement` is what the loader asks for."""
