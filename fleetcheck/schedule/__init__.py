"""Runs by the clock: the crontab line, the systemd units, and whether they would work.

In: the arguments of an audit and when to run it. Out: texts, installed and taken back exactly. Reaches no host.
"""
