"""Limits for tests in which none is to pass, however busy the machine is."""

from __future__ import annotations

from fleetcheck.remote.settings import Limits

LONG = 60.0
AMPLE = Limits(connect=LONG, banner=LONG, auth=LONG, channel=LONG, host=2 * LONG)
