"""`python -m heliograph`: the same as the command `heliograph`."""

from heliograph.cli.main import main

if __name__ == "__main__":
    main()
