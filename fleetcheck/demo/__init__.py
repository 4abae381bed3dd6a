"""The embedded fleet: real SSH servers on loopback, each host a folder, audited by the code that audits production."""
