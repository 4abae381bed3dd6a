"""``python -m fleetcheck``: the command line, for where the console script is not on the PATH."""

from fleetcheck.cli.main import main

if __name__ == "__main__":
    main()
