"""The sandbox on macOS. Importing this loads nothing; `pegboard_seatbelt.confinement` is what the loader asks for."""
