"""``python -m attr_core.cli``."""

from attr_core.cli import main

if __name__ == "__main__":
    main()
