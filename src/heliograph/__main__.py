"""`python -m heliograph`: same as the `heliograph` command."""

from heliograph.cli.main import main

if __name__ == "__main__":
    main()
