"""`python -m gateway.cli`, for an environment without the `tollhouse` script."""

from gateway.cli import main

if __name__ == "__main__":
    main()
