"""The version of fleetcheck, alone in its module so that any room may name it."""

__version__ = "0.1.0"
