"""What holds for every test: the developer's own ssh, inventory and state are shut out; skips can be forbidden."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest
from support.fetch import cache_folder

SHUT_OUT = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "FLEETCHECK_INVENTORY", "PYTHONPATH", "VIRTUAL_ENV")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that ``make`` and the continuous integration give."""
    parser.addoption("--no-skips", action="store_true", help="fail where a test was skipped")
    parser.addoption("--all-packages", action="store_true", help="demand every pinned package, also the large")


def pytest_configure() -> None:
    """Take the developer's own out of the environment, before any fixture of any scope."""
    for name in SHUT_OUT:
        os.environ.pop(name, None)
    # The packages that `make fetch` brought lie in the user's own cache folder.
    os.environ["FLEETCHECK_CACHE"] = str(cache_folder())
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        os.environ[name] = tempfile.mkdtemp(prefix="fleetcheck-tests-")
        atexit.register(shutil.rmtree, os.environ[name], ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a run with skipped tests into a failed one, where ``--no-skips`` was given."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
