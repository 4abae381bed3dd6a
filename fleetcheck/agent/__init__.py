"""What runs on the host, and what comes back from it.

In: a :class:`fleetcheck.agent.evidence.Request`. Out: a script for ``/bin/sh``, and, from the bytes that the
host answers, an :class:`fleetcheck.agent.evidence.Evidence`. The shapes of its parts: ``docs/evidence.md``.
"""
